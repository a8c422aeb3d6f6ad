"""Prometheus's own checker."""

import pytest

from tests.programs import found


@pytest.fixture
def promtool() -> str:
    """Return promtool's path; tests are skipped where it is missing, and fail in CI."""
    return found("promtool", "prometheus")
