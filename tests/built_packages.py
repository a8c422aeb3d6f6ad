"""Builds the packages of the checkout, once for all tests of a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BUILT_TIME = 1_700_000_000
DEADLINE_S = 900
_ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the .deb, the .rpm, the wheel and the sdist."""
    out = tmp_path_factory.mktemp("packages")
    answer = subprocess.run(
        [sys.executable, "-m", "tools.build_packages", "--out", str(out)],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(BUILT_TIME)},
        timeout=DEADLINE_S,
        check=False,
    )
    if "which no package brings" in answer.stderr and os.environ.get("SADVISE_REQUIRE_SLURM") != "1":
        pytest.skip(answer.stderr.strip())
    assert answer.returncode == 0, answer.stderr
    return out
