"""The rules for running jobs that restart with more GPUs, and for the sizes that they get while Slurm holds them."""

from dataclasses import replace

import pytest

from advisor.domain.actions import Requeue, SetGpus
from advisor.domain.gang import GpuScope
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.plan import Kind, Plan, Recommendation
from advisor.guard.circumstances import Circumstances, circumstances
from advisor.guard.job_rules import GROWTH_RULES, JOB_RULES, RESTART_RULES, VICTIM_RULES
from advisor.guard.rules import judge, permitted
from advisor.settings import APART_S, QUANTUM_S, Limits
from tests.builders import HOUR_S, TAKEN_AT, gpu_counts, make_hints, make_job, make_snapshot, size_of
from tests.guard.proposals import timer

HINTS = make_hints(gpus=(2, 8), checkpoint_s=300.0)
JOB = make_job(1, gpus=4, running_on=["n01"], started_ago_s=QUANTUM_S, hints=HINTS, requeueable=True)
HELD = make_job(
    1, gpus=4, reason="BeginTime", eligible_time=TAKEN_AT + 60.0, submitted_ago_s=30.0, hints=HINTS, requeueable=True
)
ALLOWED = Limits(preempt_partitions="gpu")


def stop(gpus: int = 8, *, for_job_id: int = 1, job: Job = JOB) -> Recommendation:
    """Propose to stop a job so that it grows."""
    action = Requeue(job_id=1, for_job_id=for_job_id, before=job.start_time, gpus_after=gpus)
    return replace(timer(delay_s=121.0), kind=Kind.RESIZE, action=action)


def size(gpus: int = 8, *, lease_s: float | None = 300.0) -> Recommendation:
    """Propose the size of a job that was stopped."""
    before, after = (size_of(*gpu_counts(count), limit_s=24 * HOUR_S) for count in (4, gpus))
    action = SetGpus(job_id=1, scope=GpuScope.JOB, before=before, after=after)
    return replace(timer(delay_s=0.0), kind=Kind.RESIZE, action=action, revert_after_s=lease_s)


def stopped(gpus: int = 8, *, ago_s: float = 30.0, started: float | None = None) -> Lease:
    """Return the lease of the stop."""
    lease = intended(Requeue(job_id=1, for_job_id=1, before=1.0, gpus_after=gpus), TAKEN_AT - ago_s)
    return replace(lease.ended(Ending.DONE_FOR_GOOD, TAKEN_AT - ago_s), start_time=started)


def around(job: Job, *leases: Lease, on: bool = True, limits: Limits = ALLOWED) -> Circumstances:
    """Return what the rules look at."""
    return circumstances(make_snapshot([job]), limits, restarts=on, leases=leases)


def refused_by(
    change: Recommendation, job: Job, *leases: Lease, on: bool = True, limits: Limits = ALLOWED
) -> str | None:
    """Judge one change."""
    context = around(job, *leases, on=on, limits=limits)
    return judge(Plan(recommendations=(change,)), make_snapshot([job]), context)[0].refused_by


def test_job_restarts_larger_where_the_site_allows_it() -> None:
    assert refused_by(stop(), JOB) is None
    assert permitted(make_snapshot([JOB]), around(JOB)).restartable == {1}
    assert permitted(make_snapshot([JOB]), around(JOB)).stoppable == frozenset()


def test_no_job_is_stopped_unless_that_is_switched_on_and_a_partition_named() -> None:
    assert refused_by(stop(), JOB, on=False) == "restarts_on"
    assert refused_by(stop(), JOB, limits=Limits()) == "partition_allows_it"
    assert permitted(make_snapshot([JOB]), around(JOB, on=False)).restartable == frozenset()
    assert permitted(make_snapshot([JOB]), around(JOB, limits=Limits())).restartable == frozenset()


def test_switch_for_restarts_stops_no_job_for_a_gang() -> None:
    for_gang = replace(stop(), action=Requeue(job_id=1, for_job_id=9, before=JOB.start_time))

    assert refused_by(for_gang, JOB) == "preemption_on"


def test_job_never_restarts_without_a_checkpoint_of_its_own() -> None:
    assert refused_by(stop(), replace(JOB, hints=make_hints(gpus=(2, 8)))) == "declares_checkpoint"


@pytest.mark.parametrize(
    ("change", "job"),
    [
        pytest.param(stop(4), JOB, id="the same size"),
        pytest.param(stop(2), JOB, id="smaller"),
        pytest.param(stop(9), JOB, id="beyond the range"),
        pytest.param(stop(8, for_job_id=2), JOB, id="for another job"),
        pytest.param(stop(), replace(JOB, hints=make_hints(checkpoint_s=300.0)), id="no range"),
    ],
)
def test_job_is_stopped_only_for_a_larger_size_of_its_own_range(change: Recommendation, job: Job) -> None:
    assert refused_by(change, job) == "restart_grows"


def test_job_restarts_larger_once() -> None:
    assert refused_by(stop(), JOB, stopped(ago_s=APART_S + 1, started=TAKEN_AT - APART_S)) == "restarted_once"
    assert refused_by(stop(), JOB, stopped(ago_s=APART_S - 1, started=TAKEN_AT - 60.0)) == "not_stopped_lately"
    undone = intended(Requeue(job_id=1, for_job_id=1, before=1.0, gpus_after=8), TAKEN_AT - 2 * APART_S)
    assert refused_by(stop(), JOB, undone.ended(Ending.NOT_APPLIED, TAKEN_AT - APART_S)) is None


def test_rules_for_restarts_are_those_for_stops_but_for_the_switch() -> None:
    assert set(RESTART_RULES) - set(VICTIM_RULES) == {"restarts_on", "restarted_once", "gpus_known"}
    assert set(VICTIM_RULES) - set(RESTART_RULES) == {"preemption_on"}
    assert set(GROWTH_RULES) - set(JOB_RULES) == {"stopped_to_grow"}
    assert set(JOB_RULES) - set(GROWTH_RULES) == {"not_deferred", "old_enough", "cooldown_over"}


def test_job_that_was_stopped_gets_its_size_while_slurm_holds_it() -> None:
    assert refused_by(size(), HELD, stopped()) is None
    assert refused_by(size(6), HELD, stopped()) is None
    assert permitted(make_snapshot([HELD]), around(HELD, stopped())).restarting == {1: 8}


def test_job_that_was_not_stopped_gets_none() -> None:
    assert refused_by(size(), HELD) == "not_deferred"
    assert refused_by(size(), HELD, stopped(started=TAKEN_AT - 10.0)) == "not_deferred"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        pytest.param(size(lease_s=None), "restart_grows", id="for good"),
        pytest.param(size(2), "restart_grows", id="smaller"),
    ],
)
def test_size_of_a_restart_is_larger_and_ends(change: Recommendation, rule: str) -> None:
    assert refused_by(change, HELD, stopped()) == rule


def test_size_is_at_most_the_one_that_the_job_was_stopped_for() -> None:
    assert refused_by(size(8), HELD, stopped(6)) == "restart_grows"
    assert refused_by(size(6), HELD, stopped(6)) is None


def test_job_with_a_change_that_is_not_settled_or_a_held_job_gets_no_size() -> None:
    unsettled = replace(intended(size().action, TAKEN_AT - 10.0), state=LeaseState.INTENDED)

    assert refused_by(size(), replace(HELD, held=True), stopped()) == "not_held"
    assert permitted(make_snapshot([HELD]), around(HELD, stopped(), unsettled)).restarting == {}
