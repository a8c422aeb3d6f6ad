"""What is installed, and what the documents promise."""

import re
import shutil
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder

from advisor.domain.actions import Reason
from advisor.guard.breakers import BREAKERS
from advisor.guard.caps import CAPS
from advisor.guard.change_rules import CHANGE_RULES
from advisor.guard.exchange_rules import EXCHANGE_RULES
from advisor.guard.job_rules import JOB_RULES
from advisor.guard.rules import ALL_OR_NONE
from advisor.view.markup import TYPES
from tests.cli.conftest import Sadvise, sadvise
from tools.build_packages.distributions import copied_sources
from tools.man_pages import commands_of, tree

__all__ = ["sadvise"]

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_wheel_holds_exactly_one_import_package(tmp_path: Path) -> None:
    wheel = next(iter(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])))

    names = ZipFile(wheel).namelist()

    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"advisor"}
    assert "advisor/demo/snapshot.json" in names
    assert "advisor/py.typed" in names
    assert {f"advisor/view/static/{name}" for name in (*TYPES, "chart.LICENSE.md")} <= set(names)


def test_what_the_image_is_built_from_makes_the_same_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")
    context = tmp_path / "context"
    for line in (ROOT / ".containerignore").read_text().splitlines():
        source = ROOT / line.removeprefix("!")
        if not line.startswith("!"):
            continue
        if source.is_dir():
            shutil.copytree(source, context / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (context / line[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, context / line[1:])

    ours, of_image = (
        next(iter(WheelBuilder(str(folder)).build(directory=str(tmp_path / name), versions=["standard"])))
        for name, folder in (("ours", ROOT), ("image", context))
    )

    assert sorted(ZipFile(of_image).namelist()) == sorted(ZipFile(ours).namelist())


@pytest.mark.parametrize("code", [*Reason, *JOB_RULES, *CHANGE_RULES, *CAPS, *EXCHANGE_RULES, *BREAKERS, ALL_OR_NONE])
def test_reason_codes_and_rules_are_documented(code: str) -> None:
    assert f"| `{code}` |" in (ROOT / "docs" / "reasons.md").read_text()


def test_readme_fits_three_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_index_of_the_pages_lists_every_command() -> None:
    index = (ROOT / "docs" / "README.md").read_text()

    assert [name for name in commands_of(tree()) if not re.search(rf"`(sadvise )?{name}\b", index)] == []


def test_readme_names_only_commands_that_exist(sadvise: Sadvise) -> None:
    readme = (ROOT / "README.md").read_text()
    helped = sadvise("--help").out

    for command in set(re.findall(r"`sadvise ([a-z]+)", readme)):
        assert command in helped
    for target in set(re.findall(r"^    make ([a-z-]+)", readme, re.MULTILINE)):
        assert f"\n{target}:" in (ROOT / "Makefile").read_text()


def test_packages_are_built_from_what_git_tracks_alone(tmp_path: Path) -> None:
    checkout, unpacked = tmp_path / "checkout", tmp_path / "unpacked"
    for folder in (checkout, unpacked):
        (folder / "models").mkdir(parents=True)
        for name in ("models/card.md", "models/fitted.onnx", ".gitignore"):
            (folder / name).write_text("*.onnx\n")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", "-C", str(checkout), *command], check=True)
    (checkout / "models/card.md").write_text("as it is now\n")
    (checkout / "notes.txt").write_text("untracked\n")

    copied = copied_sources(checkout, tmp_path / "copied")

    files = {str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file()}
    assert files == {"models/card.md", ".gitignore"}
    assert (copied / "models/card.md").read_text() == "as it is now\n"
    assert copied_sources(unpacked, tmp_path / "nowhere") == unpacked
