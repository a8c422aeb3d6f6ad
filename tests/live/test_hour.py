"""Half a minute of arrivals with the daemon in mode apply; `python -m tools.live_hour` is the long form."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.conftest import started
from tools.live_hour import hour_cluster, play
from tools.stage import LiveCluster

# One release is enough for the short form.
pytestmark = [pytest.mark.live, pytest.mark.releases("26.05")]


@pytest.fixture(scope="module")
def busy(release: str) -> Iterator[LiveCluster]:
    with started(hour_cluster(release)) as live:
        yield live


def test_arrivals_in_mode_apply_leaves_every_job_as_submitted(busy: LiveCluster, tmp_path: Path) -> None:
    hour = play(busy, 0.5, seed=1, interval_s=5.0, folder=tmp_path)

    assert hour.faults == []
    assert len(hour.submitted) > 3
    assert hour.rpcs.total() > 0
