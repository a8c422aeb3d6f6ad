"""Real Slurm clusters for tests, one for each release and session."""

import os
from collections.abc import Iterator

import pytest

from tools.live_slurm import LiveCluster, LiveSlurmError
from tools.live_slurm.queue import mixed_queue
from tools.live_slurm.roots import RELEASES, ready_releases


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that uses a cluster on every release chosen for this session."""
    if "cluster" in metafunc.fixturenames:
        metafunc.parametrize("cluster", _chosen_releases(), indirect=True, scope="session")


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[LiveCluster]:
    """A running cluster in whatever state earlier tests left it; `fresh` and `mixed` give a known one."""
    release: str = request.param
    if not _named_releases() and not _required() and release not in ready_releases():
        how = f"python -m tools.live_slurm bootstrap --release {release}" if RELEASES[release].suite else "install it"
        pytest.skip(f"Slurm {release} is not there: {how}")
    live = LiveCluster(release)
    try:
        live.start()
    except LiveSlurmError as err:
        if _required():
            raise
        pytest.skip(f"Slurm {release} does not start: {err}")
    yield live
    live.stop()


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
