"""Jobs that end from one snapshot to the next are learnt from; jobs that do not end are not."""

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.domain.job import Job, JobState
from advisor.domain.outcome import LONGEST_GAP_S
from advisor.domain.snapshot import Snapshot
from advisor.predict.forecaster import ModelForecaster
from advisor.predict.library import Library
from advisor.predict.queue_run_times import EndedSeen
from tests.builders import HOUR_S, TAKEN_AT, make_job, make_node, make_snapshot

RUNNING = make_job(7, gpus=4, running_on=["n01"], started_ago_s=HOUR_S)


def queue(*jobs: Job, after_s: float = 0.0) -> Snapshot:
    """Return a snapshot of jobs."""
    return replace(make_snapshot(list(jobs), [make_node("n01")]), taken_at=TAKEN_AT + after_s)


def test_job_that_left_the_queue_ended_halfway() -> None:
    seen = EndedSeen()
    seen.since_last(queue(RUNNING))

    ended = seen.since_last(queue(after_s=60.0))

    assert ended.jobs.user == (RUNNING.user,)
    assert ended.run_s.tolist() == [HOUR_S + 30.0] and ended.end_time.tolist() == [TAKEN_AT + 30.0]
    assert all(ended.usable()[0])
    assert len(seen.since_last(queue(after_s=120.0))) == 0


def test_job_that_slurm_still_shows_ended_when_it_says() -> None:
    seen = EndedSeen()
    seen.since_last(queue(RUNNING))
    over = replace(RUNNING, state=JobState.COMPLETING, end_time=TAKEN_AT + 5.0)

    assert seen.since_last(queue(over, after_s=60.0)).run_s.tolist() == [HOUR_S + 5.0]


@pytest.mark.parametrize(
    ("jobs", "after_s"),
    [
        pytest.param([RUNNING], 60.0, id="runs on"),
        pytest.param([make_job(7, gpus=4)], 60.0, id="waits again"),
        pytest.param([replace(RUNNING, state=JobState.SUSPENDED)], 60.0, id="suspended"),
        pytest.param([], LONGEST_GAP_S + 1.0, id="no look in between"),
        pytest.param([], -60.0, id="the clock went back"),
    ],
)
def test_job_that_has_not_ended_is_not_learnt_from(jobs: list[Job], after_s: float) -> None:
    seen = EndedSeen()
    seen.since_last(queue(RUNNING))

    assert len(seen.since_last(queue(*jobs, after_s=after_s))) == 0


@pytest.mark.parametrize("learns", [True, False])
def test_daemon_learns_the_users_of_its_site(learns: bool) -> None:
    forecaster = ModelForecaster(Library(Path("/nonexistent")), learns=learns)
    waiting = make_job(9, gpus=4, name=RUNNING.name)

    before = forecaster.forecasts(queue(RUNNING, waiting)).of(9)
    after = forecaster.forecasts(queue(waiting, after_s=60.0)).of(9)

    assert (before.run_time != after.run_time) is learns
