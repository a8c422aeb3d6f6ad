"""The queue of the demo: what ships is what the program submits."""

from dataclasses import replace

import pytest

from advisor.backends.snapshot_file import read_snapshot
from advisor.domain.units import HOUR_S
from advisor.watch.reading import demo_path
from tests.builders import TAKEN_AT, make_job, make_snapshot
from tools.advice_queue import ABLATION_LIMIT_S, PENDING, RUNNING, revised


def test_shipped_demo_holds_the_jobs_that_are_submitted() -> None:
    demo = read_snapshot(demo_path())

    assert {job.name for job in demo.jobs if job.is_pending} == {*PENDING, "after-vision"}
    running = {job.name: job for job in demo.jobs if not job.is_pending}
    assert running.keys() == RUNNING.keys()
    assert running["ablation"].time_limit_s == ABLATION_LIMIT_S
    assert all(
        job.end_time == pytest.approx((job.start_time or 0.0) + (job.time_limit_s or 0.0)) for job in running.values()
    )


def test_older_recording_is_revised() -> None:
    asked = make_job(1, name="pretrain", running_on=["n01"], started_ago_s=HOUR_S, time_limit_s=48 * HOUR_S)
    het = replace(make_job(2, name="het"), start_time=TAKEN_AT + 47 * HOUR_S)
    other = replace(make_job(3), start_time=TAKEN_AT + HOUR_S)

    ablation, waiting, same = revised(make_snapshot([asked, het, other])).jobs

    assert (ablation.name, ablation.time_limit_s) == ("ablation", ABLATION_LIMIT_S)
    assert ablation.end_time == TAKEN_AT - HOUR_S + ABLATION_LIMIT_S
    assert waiting.start_time is None
    assert same == other
