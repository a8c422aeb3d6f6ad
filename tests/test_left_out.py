"""A run of tests ends with one line of what it left out."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.left_out import sentence

ROOT = Path(__file__).parent.parent
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


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_the_line_stands_at_the_end_of_a_run(workers: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "test_made.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(
        "from tests import left_out, needs\n"
        'needs.THINGS = {"torch of another name": needs.Thing(absent=lambda: "it is not installed")}\n'
        "def pytest_configure(config):\n    config.pluginmanager.register(needs)\n"
        "    config.pluginmanager.register(left_out)\n"
    )
    argv = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), f"--rootdir={tmp_path}", *workers]
    argv += ["-p", "no:cacheprovider", "-m", "not live and not slow", str(tmp_path)]

    answer = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert (
        "tests left out: 1 live (make test-live); 1 slow (make test-all); 1 that need torch of another name"
        in answer.stdout
    )
