"""Nodes that backfill keeps for pending jobs: what they close, what `check` says of them, and what an age opens."""

from collections.abc import Iterator

import pytest

from tests.live.conftest import started
from tests.live.reading import sadvise_on
from tools.stage import LiveCluster
from tools.stage.live_cluster import uniform_cluster

pytestmark = pytest.mark.live

AGE = "bf_min_age_reserve"


@pytest.fixture(scope="module", params=["", f",{AGE}=259200"], ids=["as it is", "from an age on"])
def cluster(release: str, request: pytest.FixtureRequest) -> Iterator[tuple[LiveCluster, bool]]:
    """One node of eight GPUs, and whether young jobs keep nodes."""
    words = f"bf_interval=2,bf_resolution=60{request.param}"
    with started(uniform_cluster(release, node_count=1, scheduler_parameters=words)) as live:
        yield live, not request.param


def test_idle_gpus_kept_for_a_gang_are_counted_and_opened_by_an_age(
    cluster: tuple[LiveCluster, bool], release: str
) -> None:
    live, keeps = cluster
    live.submit("--gres=gpu:5", "-N1", "--time=60")
    live.wait_for(lambda: live.count("RUNNING") == 1, 30.0, what="the node is half busy")
    gang = live.submit("--gres=gpu:8", "-N1", "--time=60")
    late = live.submit("--gres=gpu:3", "-N1", "--time=300")
    # It ends before the gang could start, so that it shows when backfill has passed.
    short = live.submit("--gres=gpu:1", "-N1", "--time=1", "--begin=now+5")

    live.wait_for(lambda: live.state_of(late if not keeps else short) == "RUNNING", 60.0, what="backfill starts a job")
    told = sadvise_on(live, "check").out

    assert live.state_of(gang) == "PENDING"
    assert live.state_of(late) == ("PENDING" if keeps else "RUNNING")
    # 22.05 shows no plan for a node on which a job runs.
    assert (AGE in told) is (keeps and release != "22.05")
