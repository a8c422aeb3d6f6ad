"""Prometheus's own checker."""

import os
import shutil

import pytest


@pytest.fixture
def promtool() -> str:
    """Return promtool's path; tests are skipped where it is missing, and fail in CI."""
    found = shutil.which("promtool")
    if found is None and os.environ.get("SADVISE_REQUIRE_SLURM"):
        pytest.fail("promtool is not installed: it comes with Debian's prometheus")
    if found is None:
        pytest.skip("promtool is not installed: it comes with Debian's prometheus")
    return found
