"""Programs of other people that tests run."""

import os
import shutil

import pytest


def found(program: str, package: str) -> str:
    """Return a program's path; the test is skipped where it is missing, and fails in CI."""
    path = shutil.which(program)
    if path is None and os.environ.get("SADVISE_REQUIRE_SLURM"):
        pytest.fail(f"{program} is not installed: it comes with Debian's {package}")
    if path is None:
        pytest.skip(f"{program} is not installed: it comes with Debian's {package}")
    return path
