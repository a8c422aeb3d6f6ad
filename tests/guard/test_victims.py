"""The rules for running jobs that would be stopped for a gang."""

from dataclasses import replace

import pytest

from advisor.domain.actions import Requeue, SetNice
from advisor.domain.job import ArrayRecord, HetRecord, Job, JobState
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.mode import EVERYTHING, Mode, Modes
from advisor.domain.plan import Kind, Plan, Recommendation
from advisor.guard.circumstances import Circumstances, circumstances
from advisor.guard.job_rules import LARGEST_LOCAL_ID, VICTIM_RULES
from advisor.guard.rules import judge, stoppable
from advisor.settings import APART_S, QUANTUM_S, Limits
from tests.builders import TAKEN_AT, make_hints, make_job, make_snapshot
from tests.guard.proposals import lent, timer

VICTIM = make_job(
    1,
    gpus=4,
    running_on=["n01"],
    started_ago_s=QUANTUM_S,
    hints=make_hints(checkpoint_s=300.0),
    requeueable=True,
)
ALLOWED = Limits(preempt_partitions="debug, gpu")


def stop(job: Job = VICTIM, *, for_job_id: int = 9, delay_s: float = 600.0) -> Recommendation:
    """Propose to stop a running job."""
    action = Requeue(job_id=job.job_id, for_job_id=for_job_id, before=job.start_time)
    return replace(timer(delay_s=delay_s), kind=Kind.PREEMPT, action=action)


def preempting(
    *jobs: Job, limits: Limits = ALLOWED, on: bool = True, stopped_ago_s: float | None = None
) -> Circumstances:
    """What the rules look at where jobs may be stopped; job 1 was stopped before if `stopped_ago_s` says when."""
    snapshot = make_snapshot(jobs)
    leases = []
    if stopped_ago_s is not None:
        action = Requeue(job_id=1, for_job_id=8, before=1.0)
        lease = replace(intended(action, TAKEN_AT - stopped_ago_s), state=LeaseState.INTENDED)
        leases.append(lease.ended(Ending.DONE_FOR_GOOD, TAKEN_AT - stopped_ago_s))
    return circumstances(snapshot, limits, preempts=on, leases=leases)


def stop_refused_by(change: Recommendation, *jobs: Job, around: Circumstances | None = None) -> str | None:
    """Judge one job that would be stopped."""
    snapshot = make_snapshot(jobs)
    return judge(Plan(recommendations=(change,)), snapshot, around or preempting(*jobs))[0].refused_by


def test_running_job_that_saves_its_work_may_be_stopped_where_the_site_allows_it() -> None:
    assert stop_refused_by(stop(), VICTIM) is None
    assert stoppable(make_snapshot([VICTIM]), preempting(VICTIM)) == {1}


@pytest.mark.parametrize(
    ("rule", "job"),
    [
        pytest.param("job_still_running", make_job(1, gpus=4, hints=VICTIM.hints, requeueable=True), id="pending"),
        pytest.param("job_still_running", replace(VICTIM, state=JobState.COMPLETING), id="completing"),
        pytest.param("job_still_running", replace(VICTIM, state=JobState.SUSPENDED), id="suspended"),
        pytest.param("job_still_running", replace(VICTIM, allocation=None), id="nowhere"),
        pytest.param("declares_checkpoint", replace(VICTIM, hints=make_hints()), id="no checkpoint"),
        pytest.param("declares_checkpoint", replace(VICTIM, hints=make_hints(checkpoint_s=0.0)), id="no interval"),
        pytest.param("requeueable", replace(VICTIM, requeueable=False), id="--no-requeue"),
        pytest.param("partition_allows_it", replace(VICTIM, partitions=("long",)), id="another partition"),
        pytest.param("partition_allows_it", replace(VICTIM, partitions=("gpu", "long")), id="one of two partitions"),
        pytest.param("partition_allows_it", replace(VICTIM, partitions=()), id="no partition"),
        pytest.param("quantum_over", replace(VICTIM, start_time=TAKEN_AT - QUANTUM_S + 1), id="just started"),
        pytest.param("nothing_unseen", replace(VICTIM, unseen=("comment",)), id="not read"),
        pytest.param("array_not_split", replace(VICTIM, array=ArrayRecord(array_job_id=1, task_id=3)), id="array task"),
        pytest.param("not_heterogeneous", replace(VICTIM, het=HetRecord(het_job_id=1, offset=0)), id="het"),
        pytest.param("not_federated", replace(VICTIM, job_id=LARGEST_LOCAL_ID + 1), id="federated"),
        pytest.param("not_cron", replace(VICTIM, cron=True), id="cron"),
        pytest.param("not_reserved", replace(VICTIM, reservation="class"), id="reserved"),
        pytest.param(
            "not_opted_out", replace(VICTIM, hints=make_hints(checkpoint_s=300.0, opted_out=True)), id="opted out"
        ),
    ],
)
def test_running_job_that_must_not_be_stopped_is_refused_by_name(rule: str, job: Job) -> None:
    assert stop_refused_by(stop(job), job) == rule
    assert stoppable(make_snapshot([job]), preempting(job)) == frozenset()


def test_every_rule_for_victims_has_a_case() -> None:
    marks = test_running_job_that_must_not_be_stopped_is_refused_by_name.pytestmark  # type: ignore[attr-defined]
    cases = {case.values[0] for mark in marks for case in mark.args[1]}

    assert set(VICTIM_RULES) == cases | {
        "preemption_on",
        "not_stopped_lately",
        "no_change_outstanding",
        "mode_allows_advice",
        "no_person_objected",
        "cooldown_over",
    }


def test_nobody_is_stopped_unless_that_is_switched_on_and_a_partition_named() -> None:
    off, nowhere = preempting(VICTIM, on=False), preempting(VICTIM, limits=Limits())

    assert stop_refused_by(stop(), VICTIM, around=off) == "preemption_on"
    assert stop_refused_by(stop(), VICTIM, around=nowhere) == "partition_allows_it"
    assert stoppable(make_snapshot([VICTIM]), off) == stoppable(make_snapshot([VICTIM]), nowhere) == frozenset()


def test_nobody_is_stopped_twice_within_an_hour() -> None:
    lately, long_ago = (preempting(VICTIM, stopped_ago_s=ago_s) for ago_s in (APART_S - 1, APART_S))

    assert stop_refused_by(stop(), VICTIM, around=lately) == "not_stopped_lately"
    assert stop_refused_by(stop(), VICTIM, around=long_ago) is None


@pytest.mark.parametrize(
    ("rule", "leases", "modes"),
    [
        ("mode_allows_advice", (), Modes(default=Mode.OBSERVE)),
        ("no_person_objected", (lent(VICTIM, ending=Ending.REVERTED, ended_ago_s=900.0),), EVERYTHING),
        ("cooldown_over", (lent(VICTIM, ago_s=599.0),), EVERYTHING),
    ],
)
def test_job_that_is_not_to_be_changed_is_not_stopped_either(
    rule: str, leases: tuple[Lease, ...], modes: Modes
) -> None:
    snapshot = make_snapshot([VICTIM])
    around = circumstances(snapshot, ALLOWED, preempts=True, leases=leases, modes=modes)

    assert stop_refused_by(stop(), VICTIM, around=around) == rule
    assert stoppable(snapshot, around) == frozenset()


def test_run_that_was_to_be_stopped_must_be_the_one_that_runs() -> None:
    other = replace(VICTIM, start_time=TAKEN_AT - 2 * QUANTUM_S)

    assert stop_refused_by(stop(VICTIM), other) == "before_still_true"
    assert stop_refused_by(stop(VICTIM), replace(VICTIM, job_id=2)) == "job_still_running"


def test_nobody_is_kept_waiting_beyond_the_published_bounds() -> None:
    patient = replace(VICTIM, eligible_time=VICTIM.submit_time - 47 * 3600.0)
    long_waiter = replace(VICTIM, eligible_time=VICTIM.submit_time - 49 * 3600.0)

    assert stop_refused_by(stop(delay_s=6 * 3600.0 + 1), VICTIM) == "delay_within_limits"
    assert stop_refused_by(stop(), long_waiter) == "long_waiter_not_delayed"
    # What counts is how long it waited before it started, not how long it has been running since.
    assert stop_refused_by(stop(), patient) is None


def test_of_the_jobs_in_the_way_of_one_gang_all_are_stopped_or_none() -> None:
    second, other = replace(VICTIM, job_id=2, requeueable=False), replace(VICTIM, job_id=3)
    snapshot = make_snapshot([VICTIM, second, other])
    plan = Plan(recommendations=(stop(VICTIM), stop(second), stop(other, for_job_id=8)))

    verdicts = judge(plan, snapshot, preempting(VICTIM, second, other))

    assert [verdict.refused_by for verdict in verdicts] == ["all_or_none", "requeueable", None]


def test_running_jobs_are_changed_in_no_other_way() -> None:
    assert (
        stop_refused_by(replace(timer(), action=SetNice(job_id=1, before=0, after=50)), VICTIM) == "job_still_pending"
    )
