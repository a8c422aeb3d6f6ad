"""Prometheus's own checker."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def promtool(need: Callable[[str], Path]) -> str:
    """Return promtool's path."""
    return str(need("promtool"))
