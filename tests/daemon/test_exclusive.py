"""One daemon of a cluster, and no second."""

import subprocess
import sys
from pathlib import Path

import pytest

from advisor.daemon.launch import only_daemon
from advisor.errors import ConfigError


@pytest.mark.parametrize("shared", ["folder", "journal"])
def test_second_daemon_is_refused_on_the_same_folder_or_journal(tmp_path: Path, shared: str) -> None:
    (tmp_path / "other").mkdir()
    folder = tmp_path if shared == "folder" else tmp_path / "other"
    journal = tmp_path / ("a.sqlite" if shared == "journal" else "b.sqlite")

    with (
        only_daemon(tmp_path, tmp_path / "a.sqlite"),
        pytest.raises(ConfigError, match="another sadvised runs here: stop that one first"),
        only_daemon(folder, journal),
    ):
        pass
    with only_daemon(folder, journal):
        pass


def test_lock_of_a_killed_daemon_is_free(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom advisor.daemon.launch import only_daemon\n"
        "with only_daemon(Path(sys.argv[1]), Path(sys.argv[1]) / 'a'):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)

    with only_daemon(tmp_path, tmp_path / "a"):
        assert (tmp_path / "sadvised.lock").stat().st_mode & 0o777 == 0o600


def test_missing_folder_names_the_key(tmp_path: Path) -> None:
    why = r"make its folder for this user, or set daemon\.runtime_folder"
    with pytest.raises(ConfigError, match=why), only_daemon(tmp_path / "gone", tmp_path / "journal"):
        pass
    beside = tmp_path / "gone" / "journal"
    with pytest.raises(ConfigError, match=r"or set journal\.file"), only_daemon(tmp_path, beside):
        pass
