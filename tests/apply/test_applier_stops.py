"""Applying where jobs are stopped for a gang: all in the way or none, remembered, and never taken back."""

from dataclasses import replace

import pytest

from advisor.apply.applier import INTENT_GRACE_S, Applier
from advisor.cycle import Cycle
from advisor.domain.actions import Requeue
from advisor.domain.job import Job
from advisor.domain.lease import Ending, intended
from advisor.domain.plan import Outcome
from advisor.settings import PlanningSettings
from tests.apply.test_applier import applier_on, endings
from tests.builders import HOUR_S, TAKEN_AT, make_hints, make_job
from tests.fake_cluster import FakeCluster
from tests.planning.test_checkpoint_requeue import FORECASTS, GANG, LIMITS
from tests.planning.test_checkpoint_requeue import running as stoppable
from tests.planning.test_with_forecasts import FixedForecaster

STOP = Requeue(job_id=9, for_job_id=77, before=TAKEN_AT - HOUR_S / 2)


def stoppable_queue(*more: Job) -> FakeCluster:
    """Two jobs in the way of a gang that wants what both hold on one node, and the gang."""
    victims = [stoppable(job_id, "n01", gpus=4) for job_id in (1, 2)]
    others = [stoppable(number, f"n0{number - 1}", hints=make_hints()) for number in (3, 4, 5)]
    return FakeCluster(jobs={job.job_id: job for job in (*victims, *others, GANG, *more)})


def stopping(cluster: FakeCluster) -> Applier:
    """An applier on a site where jobs may be stopped."""
    cycle = Cycle(planning=PlanningSettings(preempt=True), limits=LIMITS, forecaster=FixedForecaster(by_job=FORECASTS))
    return Applier(source=cluster, actuator=cluster, cycle=cycle)


def test_jobs_in_the_way_of_a_gang_are_stopped_and_that_is_remembered_but_not_out() -> None:
    cluster = stoppable_queue()
    at_work = stopping(cluster)

    step = at_work.step()

    assert [(receipt.action.job_id, receipt.outcome) for receipt in step.applied] == [
        (1, Outcome.APPLIED),
        (2, Outcome.APPLIED),
    ]
    assert not cluster.jobs[1].allocation and not cluster.jobs[2].allocation
    assert at_work.journal.leases() == ()
    assert [lease.ending for lease in at_work.journal.closed([1, 2])] == [Ending.DONE_FOR_GOOD] * 2
    assert at_work.revert(cluster.snapshot()).taken_back == ()


def test_nobody_is_stopped_again_for_the_same_gang_while_its_place_is_cleared() -> None:
    cluster = stoppable_queue()
    at_work = stopping(cluster)
    at_work.step()
    # Slurm has started them again, and the gang has not.
    cluster.jobs |= {job_id: stoppable(job_id, "n01", gpus=4) for job_id in (1, 2)}
    cluster.now += 60.0

    again = at_work.step()

    assert again.applied == ()


def test_once_one_victim_stays_no_further_one_is_stopped() -> None:
    cluster = stoppable_queue()
    cluster.failing = {Requeue: "it still runs"}

    step = stopping(cluster).step()

    assert [(receipt.action.job_id, receipt.outcome) for receipt in step.applied] == [(1, Outcome.FAILED)]


def test_where_one_victim_is_not_wanted_none_is_stopped() -> None:
    cluster = stoppable_queue()

    step = replace(stopping(cluster), wanted=lambda job, _: job.job_id != 2).step()

    assert len(step.record.recommendations) == 2
    assert step.applied == () and cluster.sent == []


@pytest.mark.parametrize(
    ("job", "left", "ending"),
    [
        pytest.param(make_job(9, gpus=2, running_on=["n01"]), 1, None, id="still in that run"),
        pytest.param(make_job(9, gpus=2), 0, Ending.DONE_FOR_GOOD, id="pending"),
        pytest.param(
            make_job(9, gpus=2, running_on=["n02"], started_ago_s=9.0), 0, Ending.DONE_FOR_GOOD, id="later run"
        ),
        pytest.param(None, 0, Ending.DONE_FOR_GOOD, id="gone"),
    ],
)
def test_intent_to_stop_a_job_is_settled_by_what_the_job_does(
    job: Job | None, left: int, ending: Ending | None
) -> None:
    cluster = FakeCluster(jobs={} if job is None else {9: job})
    at_work = applier_on(cluster, intended(STOP, TAKEN_AT - 60.0))

    found = at_work.reconcile(cluster.snapshot())

    assert not found.taken_back and not found.overruled
    assert len(at_work.journal.leases()) == left
    assert endings(at_work) == ([] if ending is None else [ending])
    assert cluster.sent == []


def test_intent_to_stop_a_job_that_runs_on_is_dropped_in_the_end() -> None:
    cluster = FakeCluster(jobs={9: make_job(9, gpus=2, running_on=["n01"])})
    at_work = applier_on(cluster, intended(STOP, TAKEN_AT - INTENT_GRACE_S))

    at_work.reconcile(cluster.snapshot())

    assert at_work.journal.leases() == ()
    assert endings(at_work) == [Ending.NOT_APPLIED]
