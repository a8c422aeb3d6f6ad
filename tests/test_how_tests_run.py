"""How the tests run: groups, limits of time, what they need, and the line of what was left out."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests import groups, needs
from tests.left_out import sentence
from tools.test_machine import LIVE, OTHERS, missing

pytestmark = pytest.mark.no_cover
FOLDER: Final = Path(groups.__file__).parent
ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("node_id", "group"),
    [
        ("tests/live/test_apply.py::test_a[22.05]", "tests/live/test_apply.py 22.05"),
        ("tests/live/test_apply.py::test_a[before-26.05]", "tests/live/test_apply.py 26.05"),
        ("tests/live/test_apply.py::test_a[26.05-before]", "tests/live/test_apply.py 26.05"),
        ("tests/test_packages.py::test_a[sadvise]", "tests/test_packages.py"),
        ("tests/browser/test_web.py::test_a[line]", "tests/browser/test_web.py"),
        ("tests/test_text.py::test_a[22.05]", "tests/test_text.py::test_a[22.05]"),
    ],
)
def test_group_is_a_file_on_a_release_where_tests_share_something(node_id: str, group: str) -> None:
    assert groups.group_of(node_id) == group


def test_what_is_together_runs_first_where_tests_are_stolen_from_the_end(tmp_path: Path) -> None:
    for name in ("test_first.py", "test_packages.py"):
        (tmp_path / "tests").mkdir(exist_ok=True)
        (tmp_path / "tests" / name).write_text("def test_a(): pass\n", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    argv = [sys.executable, "-m", "pytest", "-v", "-p", "tests.groups", "-n", "1", "--dist", "worksteal", "tests"]

    printed = subprocess.run(
        argv, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, check=True
    ).stdout

    passed = [line.split()[-1] for line in printed.splitlines() if " PASSED " in line]
    assert passed == ["tests/test_packages.py::test_a", "tests/test_first.py::test_a"]


def test_order_names_files_that_are_there() -> None:
    names = {path.stem.removeprefix("test_") for path in FOLDER.rglob("test_*.py")}

    assert set(groups.ORDER) <= names
    assert len(set(groups.ORDER)) == len(groups.ORDER)


def test_files_are_together_that_are_there() -> None:
    assert [path for path in groups.TOGETHER if not (FOLDER.parent / path).exists()] == []


HANGS = """
import time

def test_that_hangs():
    time.sleep(60)

def test_after_it():
    pass
"""
HANGS_ON_THE_WAY_OUT = """
import time

def test_that_hangs():
    try:
        time.sleep(60)
    finally:
        time.sleep(60)
"""
HANGS_IN_ITS_FIXTURE = """
import time

import pytest

@pytest.fixture
def slow():
    yield
    time.sleep(60)

def test_that_hangs(slow):
    time.sleep(60)
"""


def run(folder: Path, content: str, *, limit_s: int) -> subprocess.CompletedProcess[str]:
    """Run a file of tests with the settings of this checkout and a limit of time."""
    path = folder / "test_file.py"
    path.write_text(content)
    argv = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest"]
    argv += ["-p", "no:cacheprovider", f"--timeout={limit_s}", str(path)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)


def test_a_test_that_hangs_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    answer = run(tmp_path, HANGS, limit_s=1)

    assert answer.returncode == pytest.ExitCode.TESTS_FAILED
    assert "Failed: Timeout (>1.0s) from pytest-timeout." in answer.stdout
    assert "1 failed, 1 passed" in answer.stdout


@pytest.mark.slow
@pytest.mark.parametrize("content", [HANGS_ON_THE_WAY_OUT, HANGS_IN_ITS_FIXTURE], ids=["finally", "fixture"])
def test_a_test_that_hangs_twice_ends_the_process_with_the_stacks(content: str, tmp_path: Path) -> None:
    # A busy machine takes its time until the test hangs.
    answer = run(tmp_path, content, limit_s=5)

    assert answer.returncode == 1
    assert "(most recent call first)" in answer.stderr and "test_file.py" in answer.stderr
    assert "failed" not in answer.stdout


# Where a test may be left out because of its machine.
ONE_PLACE: Final = Path(needs.__file__)
LEAVING_OUT: Final = frozenset(["skip", "skipif", "importorskip"])
# Each starts daemons or a machine.
STARTERS: Final = frozenset(["LiveCluster", "ThrowawayMachine", "Twins", "controller"])


@cache
def trees() -> Mapping[Path, ast.Module]:
    """Return the modules of the tests, parsed."""
    return {
        path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.rglob("*.py")) if path != ONE_PLACE
    }


def looks_for_itself(node: ast.AST) -> bool:
    """Return whether a part of a module leaves tests out, searches a program, or asks whether it is root."""
    match node:
        case (
            ast.Attribute(attr=name, value=ast.Name(id="pytest"))
            | ast.Attribute(attr=name, value=ast.Attribute(attr="mark", value=ast.Name(id="pytest")))
        ):
            return name in LEAVING_OUT
        case ast.Attribute(attr="which", value=ast.Name(id="shutil")):
            return True
        case ast.Compare(left=ast.Call(func=ast.Attribute(attr="geteuid" | "getuid")), comparators=[ast.Constant()]):
            return True
        case _:
            return False


def marks(tree: ast.Module) -> set[str]:
    """Return the names of the marks of all tests of a module."""
    found = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["pytestmark"]
    ]
    return {node.attr for value in found for node in ast.walk(value) if isinstance(node, ast.Attribute)}


def imported(tree: ast.Module) -> set[str]:
    """Return the names that a module imports from others."""
    return {name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}


def test_only_one_place_looks_for_things_of_the_machine() -> None:
    found = [
        f"{path.relative_to(FOLDER)}:{node.lineno}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if looks_for_itself(node) and isinstance(node, ast.expr)
    ]

    assert found == [], "name the thing in tests/needs.py, and mark the test with pytest.mark.needs"


@pytest.mark.parametrize(
    "line",
    [
        "pytest.skip('no')",
        "@pytest.mark.skipif(True, reason='')\ndef test(): ...",
        "pytest.importorskip('torch')",
        "shutil.which('rpm')",
        "if os.geteuid() != 0: ...",
    ],
)
def test_a_look_at_the_machine_is_found(line: str) -> None:
    assert any(looks_for_itself(node) for node in ast.walk(ast.parse(line)))


def test_modules_that_start_clusters_are_live_and_others_that_start_machines_slow() -> None:
    unmarked = [
        str(path.relative_to(FOLDER))
        for path, tree in trees().items()
        if path.name.startswith("test_")
        if (path.parent == FOLDER / "live" and "live" not in marks(tree))
        or (imported(tree) & STARTERS and not marks(tree) & {"live", "slow"})
    ]

    assert unmarked == []


def test_marks_name_things_that_are_known() -> None:
    named = {
        (str(path.relative_to(FOLDER)), word.value)
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.needs"
        for word in node.args
        if isinstance(word, ast.Constant)
    }

    assert {one for one in named if one[1] not in needs.THINGS} == set()
    assert named


TESTS = """
import pytest

@pytest.mark.slow
def test_slow() -> None: ...

@pytest.mark.live
def test_live() -> None: ...

@pytest.mark.needs("torch of another name")
def test_needing() -> None: ...

def test_quick() -> None: ...
"""


@pytest.mark.parametrize(
    ("counts", "skipped", "line"),
    [
        ({}, [], ""),
        ({"live": 3}, [], "tests left out: 3 live (make test-live)"),
        (
            {"live": 3, "slow": 2},
            ["Skipped: needs rpm: it is not installed", "Skipped: needs root: takes root", "Skipped: needs rpm: no"],
            "tests left out: 3 live (make test-live); 2 slow (make test-all); 3 that need root, rpm (make test-all)",
        ),
    ],
    ids=["nothing", "live", "all"],
)
def test_one_line_names_the_tests_and_the_commands(counts: dict[str, int], skipped: list[str], line: str) -> None:
    assert sentence(Counter(counts), skipped) == line


def test_the_line_stands_at_the_end_of_a_run_by_workers(tmp_path: Path) -> None:
    (tmp_path / "test_made.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(
        "from tests import left_out, needs\n"
        'needs.THINGS = {"torch of another name": needs.Thing(absent=lambda: "it is not installed")}\n'
        "def pytest_configure(config):\n    config.pluginmanager.register(needs)\n"
        "    config.pluginmanager.register(left_out)\n"
    )
    argv = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), f"--rootdir={tmp_path}", "-n", "2"]
    argv += ["-p", "no:cacheprovider", "-m", "not live and not slow", str(tmp_path)]

    answer = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert (
        "tests left out: 1 live (make test-live); 1 slow (make test-all); 1 that need torch of another name"
        in answer.stdout
    )


def test_packages_of_programs_that_are_absent_are_named_once() -> None:
    programs = {"sh": "dash", "no-such-program": "something", "nor-this-one": "something"}

    assert missing(programs) == ["something"]


def test_where_apt_is_absent_it_names_every_package_and_installs_nothing(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tools.test_machine"]

    run = subprocess.run(argv, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)

    assert run.returncode == 1
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert {"chromium", "curl", "dnf", "promtool"} <= set(run.stderr.split("installs ")[1].split(";")[0].split())


def test_a_release_that_does_not_exist_is_refused_with_those_that_do() -> None:
    argv = [sys.executable, "-m", "tools.test_machine", "--release", "19.05"]

    run = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 2
    assert "invalid choice: '19.05'" in run.stderr


def test_a_program_is_listed_once() -> None:
    assert not LIVE.keys() & OTHERS.keys()
