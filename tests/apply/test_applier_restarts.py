"""Applying where a running job restarts with more GPUs: stop, size, and what becomes of both."""

from dataclasses import replace

from advisor.apply.applier import Applier
from advisor.cycle import Cycle
from advisor.domain.actions import Reason, Requeue, SetGpus
from advisor.domain.forecast import JobForecast
from advisor.domain.lease import Ending
from advisor.domain.plan import Outcome
from advisor.planning.preemption import REQUEUE_HOLD_S
from advisor.planning.restarts import GROWTH_LEASE_S
from advisor.settings import Limits
from tests.builders import HOUR_S, TAKEN_AT, make_job
from tests.fake_cluster import FakeCluster
from tests.planning.test_running_sizes import ALLOWED, ON, running
from tests.planning.test_with_forecasts import FixedForecaster, runs

ROUND_S = 60.0


def alone() -> FakeCluster:
    """A job of 4 GPUs and up to 8 on an idle cluster."""
    return FakeCluster(jobs={1: running()})


def growing(cluster: FakeCluster, limits: Limits = ALLOWED) -> Applier:
    """Return an applier on a site where jobs can restart with more GPUs."""
    forecaster = FixedForecaster(by_job={1: JobForecast(run_time=runs(12.0))})
    cycle = Cycle(planning=ON, limits=limits, forecaster=forecaster)
    return Applier(source=cluster, actuator=cluster, cycle=cycle)


def hold(cluster: FakeCluster) -> None:
    """Let Slurm hold the job that was stopped, as if it was submitted just now."""
    cluster.jobs[1] = replace(
        cluster.jobs[1],
        reason="BeginTime",
        submit_time=cluster.now,
        eligible_time=cluster.now + REQUEUE_HOLD_S,
        priority=10,
    )
    cluster.now += ROUND_S


def release(cluster: FakeCluster) -> None:
    """Let the job wait for GPUs."""
    cluster.now += REQUEUE_HOLD_S
    cluster.jobs[1] = replace(cluster.jobs[1], reason="Resources")


def start(cluster: FakeCluster) -> None:
    """Start the job on a node."""
    waiting = cluster.jobs[1]
    cluster.jobs[1] = replace(
        running(gpus=waiting.gang.gpu_count or 0, started_ago_s=TAKEN_AT - cluster.now), submit_time=waiting.submit_time
    )


def test_job_is_stopped_then_sized_and_starts_with_more_gpus() -> None:
    cluster = alone()
    at_work = growing(cluster)

    stopped = at_work.step()
    hold(cluster)
    sized = at_work.step()
    release(cluster)
    start(cluster)
    after = at_work.step()
    cluster.now += 3 * HOUR_S
    later = at_work.step()

    assert [(type(one.action), one.outcome) for one in stopped.applied] == [(Requeue, Outcome.APPLIED)]
    assert [(type(one.action), one.outcome) for one in sized.applied] == [(SetGpus, Outcome.APPLIED)]
    assert after.applied == later.applied == () and cluster.jobs[1].gang.gpu_count == 8
    stop, size = at_work.journal.closed([1])
    assert (stop.ending, size.ending) == (Ending.DONE_FOR_GOOD, Ending.NO_LONGER_PENDING)
    assert stop.start_time == cluster.jobs[1].start_time
    assert at_work.journal.leases() == ()


def test_job_that_does_not_start_with_more_gpus_gets_its_size_back_and_no_other() -> None:
    cluster = alone()
    at_work = growing(cluster)
    at_work.step()
    hold(cluster)
    at_work.step()
    cluster.jobs[2] = make_job(2, gpus=4, running_on=["n01"])
    release(cluster)

    waits = at_work.step()
    cluster.now += GROWTH_LEASE_S
    back = at_work.step()
    cluster.now += ROUND_S
    after = at_work.step()

    assert waits.reconciled.taken_back == ()
    assert [(type(one.action), one.outcome) for one in back.reconciled.taken_back] == [(SetGpus, Outcome.APPLIED)]
    assert cluster.jobs[1].gang.gpu_count == 4
    assert not any(isinstance(one.action, Requeue | SetGpus) for one in (*back.applied, *after.applied))


def test_person_reverts_the_size_and_the_stop_stays() -> None:
    cluster = alone()
    at_work = growing(cluster)
    at_work.step()
    hold(cluster)
    at_work.step()

    reverted = at_work.revert(cluster.snapshot())
    again = at_work.step()

    assert [type(one.action) for one in reverted.taken_back] == [SetGpus]
    assert cluster.jobs[1].gang.gpu_count == 4 and again.applied == ()


def test_size_that_slurm_refuses_is_tried_in_the_next_round() -> None:
    cluster = alone()
    at_work = growing(cluster)
    at_work.step()
    hold(cluster)
    cluster.failing = {SetGpus: "busy"}

    refused = at_work.step()
    cluster.failing = {}
    cluster.now += ROUND_S
    again = at_work.step()

    assert [one.outcome for one in refused.applied] == [Outcome.FAILED]
    assert [(type(one.action), one.outcome) for one in again.applied] == [(SetGpus, Outcome.APPLIED)]


def test_wait_after_a_stop_counts_as_our_delay_and_is_bounded_by_a_lift() -> None:
    cluster = alone()
    # Jobs of others are passed only by a job that our changes delayed.
    at_work = growing(cluster, replace(ALLOWED, fairness="user"))
    at_work.step()
    hold(cluster)
    at_work.step()
    # Others take all that is idle for a day, and more of them stand before it.
    cluster.jobs |= {number: make_job(number, gpus=8, running_on=[f"n0{number - 1}"]) for number in (2, 3, 4, 5)}
    cluster.jobs[9] = make_job(9, gpus=8, priority=9000, user="bob")
    release(cluster)
    cluster.now += GROWTH_LEASE_S

    step = at_work.step()

    (stop,) = at_work.journal.closed([1])[:1]
    assert (stop.would_start_time, stop.start_time) == (TAKEN_AT, None)
    (lift,) = step.record.recommendations
    assert lift.reason is Reason.DELAYED_BY_ADVICE and lift.evidence["realised_delay_s"] == cluster.now - TAKEN_AT
    assert [(one.action.job_id, one.outcome) for one in step.applied] == [(1, Outcome.APPLIED)]
