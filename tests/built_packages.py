"""Builds the packages of the checkout, once for all tests of a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.made_once import made_once

BUILT_TIME = 1_700_000_000
DEADLINE_S = 900
_ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the .deb, the .rpm, the wheel and the sdist."""
    return made_once(tmp_path_factory, "packages", build)


def build(folder: Path) -> None:
    """Build all packages into a folder."""
    answer = subprocess.run(
        [sys.executable, "-m", "tools.build_packages", "--out", str(folder)],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(BUILT_TIME)},
        timeout=DEADLINE_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
