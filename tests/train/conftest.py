"""Training takes PyTorch, of the group `train`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs


class _WithoutTorch(pytest.Module):
    """A module of tests that are not imported, and stand as one test that is skipped, or fails in CI."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Return nothing to import."""
        needs.path_of("torch")
        return iter(())


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Import no module of tests where PyTorch is absent."""
    absent = module_path.name.startswith("test_") and needs.THINGS["torch"].absent()
    return _WithoutTorch.from_parent(parent, path=module_path) if absent else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder; pytest passes those of all folders."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.needs("torch"))
