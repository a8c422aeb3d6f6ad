"""The limits of time of every test: a test that hangs fails alone, and if that does not end it, the process ends."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
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
