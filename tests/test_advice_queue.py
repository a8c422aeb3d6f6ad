"""The queue of the demo: what ships is what the program submits."""

import pytest

from advisor.backends.snapshot_file import read_snapshot
from advisor.domain.units import MINUTE_S
from advisor.watch.reading import demo_path
from tools.advice_queue import PENDING, RUNNING


def test_shipped_demo_holds_the_jobs_that_are_submitted() -> None:
    demo = read_snapshot(demo_path())

    assert {job.name for job in demo.jobs if job.is_pending} == {*PENDING, "after-vision"}
    running = {job.name: job for job in demo.jobs if not job.is_pending}
    assert running.keys() == RUNNING.keys()
    assert running["ablation"].time_limit_s == 30 * MINUTE_S
    assert all(
        job.end_time == pytest.approx((job.start_time or 0.0) + (job.time_limit_s or 0.0)) for job in running.values()
    )
