"""Real Slurm clusters for tests, one for each release and session."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tools.stage import LiveCluster
from tools.stage.mixed_queue import mixed_queue
from tools.stage.roots import RELEASES

# Live tests wait in real time, several beside each other.
LIMIT_S: Final = 900.0
FOLDER: Final = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give live tests a longer limit than the default one; pytest passes the items of all folders here."""
    absent = [item for item in items if _release_of(item) is None]
    if absent:
        items[:] = [item for item in items if _release_of(item) is not None]
        config.hook.pytest_deselected(items=absent)
    for item in items:
        if not item.get_closest_marker("live"):
            continue
        if item.path.parent == FOLDER and "release" not in getattr(item, "fixturenames", ()):
            raise pytest.UsageError(f"{item.nodeid} does not ask for the fixture `release`: it would run without Slurm")
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LIMIT_S))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that uses a cluster on every release of this session, or on those that its mark names."""
    if "release" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("releases")
    chosen = [name for name in _chosen_releases() if mark is None or name in mark.args]
    metafunc.parametrize("release", chosen or [None], indirect=True, scope="session")


def _release_of(item: pytest.Item) -> str | None:
    """Return the release of a test, "" if it has none, and None if this session has chosen none that it runs on."""
    name: str | None = item.callspec.params.get("release", "") if hasattr(item, "callspec") else ""
    return name


@pytest.fixture(scope="session")
def release(request: pytest.FixtureRequest, need: Callable[[str], Path]) -> str:
    """The release of Slurm that a test runs on; every live test asks for it, so that none starts where it is absent."""
    name: str = request.param
    need(f"slurm {name}")
    return name


@contextmanager
def started(live: LiveCluster) -> Iterator[LiveCluster]:
    """Run a cluster."""
    live.start()
    try:
        yield live
    finally:
        live.stop()


@pytest.fixture(scope="session")
def cluster(release: str) -> Iterator[LiveCluster]:
    """A running cluster in whatever state earlier tests left it; `fresh` and `mixed` give a known one."""
    with started(LiveCluster(release)) as live:
        yield live


@pytest.fixture
def fresh(cluster: LiveCluster) -> LiveCluster:
    """The cluster as right after its start: no job, every node idle, the first job gets id 1."""
    cluster.reset()
    return cluster


@pytest.fixture(scope="session")
def _filled() -> dict[tuple[str, int], dict[str, int]]:
    """Job ids by name of every mixed queue made so far, by release and generation of the cluster."""
    return {}


@pytest.fixture
def mixed(cluster: LiveCluster, _filled: dict[tuple[str, int], dict[str, int]]) -> dict[str, int]:
    """Job ids by name of the mixed queue, which the cluster then holds; for tests that change nothing."""
    if (cluster.release, cluster.generation) not in _filled:
        cluster.reset()
        _filled[cluster.release, cluster.generation] = mixed_queue(cluster)
    return _filled[cluster.release, cluster.generation]


def _chosen_releases() -> list[str]:
    named = [name.strip() for name in os.environ.get("SADVISE_SLURM_RELEASES", "").split(",") if name.strip()]
    return named or list(RELEASES)
