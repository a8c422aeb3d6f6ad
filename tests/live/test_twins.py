"""Two live clusters that get the same jobs; `python -m tools.live_twins` is the whole experiment."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tools.live_twins.both_clusters import Twin, Twins
from tools.live_twins.twin_jobs import draw_requests

# The oldest and the newest release stand for all.
pytestmark = [pytest.mark.live, pytest.mark.releases("22.05", "26.05")]


@pytest.fixture(scope="module")
def twins(release: str) -> Iterator[Twins]:
    with Twins(release) as both:
        yield both


def test_both_clusters_start_the_same_jobs_in_the_same_seconds_and_cancel_them_together(twins: Twins) -> None:
    requests = [replace(request, run_s=8.0, limit_s=60.0) for request in draw_requests(1, 60.0)]
    pairs = [twins.submit(request, time.time()) for request in requests]
    waiting = twins.submit(replace(requests[0], name="never", options=("-N8", "--exclusive")), time.time())

    twins.cancel(waiting)
    for live in twins.clusters.values():
        live.wait_for(lambda live=live: not live.run("squeue", "-h"), 120.0, what="every job has ended")  # type: ignore[misc]
    twins.look()

    assert waiting.stay[Twin.PLAIN].state == waiting.stay[Twin.ADVISED].state == "CANCELLED"
    assert waiting.stay[Twin.PLAIN].start_time is waiting.stay[Twin.ADVISED].start_time is None
    assert {stay.state for pair in pairs for stay in pair.stay.values()} == {"COMPLETED"}
    starts = [[pair.stay[twin].start_time or 0.0 for pair in pairs] for twin in Twin]
    assert max(abs(plain - advised) for plain, advised in zip(*starts, strict=True)) <= 5.0
    assert max(starts[0]) > pairs[0].submit_time + 5.0
