"""Real Slurm clusters for tests, one for each release and session."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tools.live_slurm import LiveCluster, LiveSlurmError
from tools.live_slurm.queue import mixed_queue
from tools.live_slurm.roots import BOOTSTRAP_DEADLINE_S, RELEASES, ready_releases

# The setup of the first test of a release installs it, or waits until another lane has done so.
LIMIT_S = BOOTSTRAP_DEADLINE_S + 600.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give live tests a longer limit than the default one; pytest passes the items of all folders here."""
    for item in items:
        if item.get_closest_marker("live") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LIMIT_S))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that uses a cluster on every release chosen for this session."""
    if "release" in metafunc.fixturenames:
        metafunc.parametrize("release", _chosen_releases(), scope="session")


@contextmanager
def started(live: LiveCluster) -> Iterator[LiveCluster]:
    """Run a cluster; skip the test where its release is not there, unless it is required or asked for by name."""
    if not _named_releases() and not _required() and live.release not in ready_releases():
        how = f"python -m tools.live_slurm bootstrap --release {live.release}"
        pytest.skip(f"Slurm {live.release} is not there: {how if RELEASES[live.release].suite else 'install it'}")
    try:
        live.start()
    except LiveSlurmError as err:
        if _required():
            raise
        pytest.skip(f"Slurm {live.release} does not start: {err}")
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
    return _named_releases() or list(RELEASES)


def _named_releases() -> list[str]:
    return [name.strip() for name in os.environ.get("SADVISE_SLURM_RELEASES", "").split(",") if name.strip()]


def _required() -> bool:
    return os.environ.get("SADVISE_REQUIRE_SLURM") == "1"
