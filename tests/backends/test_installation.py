"""The command that installs what is missing."""

import sys
from pathlib import Path

import pytest

from advisor.backends.installation import PACKAGED, how_to_install


def installed_by(installer: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put metadata of sadvise on the path that name an installer."""
    metadata = folder / "sadvise-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sadvise\nVersion: 0.1.0\n")
    (metadata / "INSTALLER").write_text(f"{installer}\n")
    monkeypatch.syspath_prepend(folder)


def test_what_pip_installed_names_pip_of_the_same_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_by("pip", tmp_path, monkeypatch)

    assert how_to_install("fit") == f"{sys.executable} -m pip install 'sadvise[fit]'"
    assert how_to_install("slurm") == f"{sys.executable} -m pip install 'sadvise[slurm]'"


@pytest.mark.parametrize(
    ("programs", "command"),
    [
        (("apt-get", "dnf"), "apt-get install ./sadvise-fit_*.deb"),
        (("dnf",), "dnf install ./sadvise-fit-[0-9]*.rpm"),
    ],
    ids=["apt-get", "dnf"],
)
def test_a_package_names_the_package_manager_of_the_machine(
    programs: tuple[str, ...], command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed_by(PACKAGED, tmp_path, monkeypatch)
    for name in programs:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert how_to_install("fit") == how_to_install("slurm") == command
