"""Applying: a lift is given for a request, and is taken back from a job that asks for more or was requeued."""

from dataclasses import replace

import pytest

from advisor.domain.actions import SetNice
from advisor.domain.gang import GpuCount
from advisor.domain.job import ArrayRecord, Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.plan import Outcome
from advisor.domain.request import REQUEUED, request_of
from advisor.errors import SlurmUnavailableError
from tests.apply.test_applier import applier_on, endings
from tests.builders import HOUR_S, TAKEN_AT, make_job
from tests.fake_cluster import FakeCluster

LIFT = SetNice(job_id=9, before=0, after=-1007)
JOB = make_job(9, gpus=1, time_limit_s=HOUR_S)
LONGER = replace(JOB, nice=-1007, time_limit_s=7 * HOUR_S)
WHY = "asks for a time limit of 7.0 h, for a time limit of 1.0 h when it was changed"


def lifted(job: Job = JOB, *, state: LeaseState = LeaseState.OUT) -> Lease:
    lease = intended(LIFT, TAKEN_AT - 60.0, after_s=HOUR_S, job=job, request=request_of(job))
    return replace(lease, state=state)


def cluster_of(*jobs: Job) -> FakeCluster:
    return FakeCluster(jobs={job.job_id: job for job in jobs})


def test_a_job_that_asks_for_more_loses_its_lift_for_a_reason_in_plain_words() -> None:
    cluster = cluster_of(LONGER)
    at_work = applier_on(cluster, lifted())

    found = at_work.reconcile(cluster.snapshot())

    (closed,) = at_work.journal.closed([9])
    assert [(receipt.action, receipt.outcome, receipt.text) for receipt in found.taken_back] == [
        (LIFT.swapped(), Outcome.APPLIED, f"the job {WHY}")
    ]
    assert (closed.ending, closed.lost, cluster.jobs[9].nice) == (Ending.TAKEN_BACK, WHY, 0)


def test_what_slurm_says_against_taking_back_a_lost_lift_is_told() -> None:
    cluster = cluster_of(LONGER)
    cluster.failing = {SetNice: "Slurm is busy"}
    at_work = applier_on(cluster, lifted())

    found = at_work.reconcile(cluster.snapshot())

    assert [receipt.text for receipt in found.taken_back] == ["Slurm is busy"]


@pytest.mark.parametrize(
    ("job", "lease"),
    [
        pytest.param(replace(JOB, nice=-1007, time_limit_s=60.0), lifted(), id="asks for less"),
        pytest.param(LONGER, replace(lifted(), request=None), id="request not stored by an earlier version"),
        pytest.param(replace(LONGER, unseen=("a field",)), lifted(), id="not read"),
    ],
)
def test_a_lift_stays(job: Job, lease: Lease) -> None:
    cluster = cluster_of(job)
    at_work = applier_on(cluster, lease)

    at_work.reconcile(cluster.snapshot())

    assert cluster.sent == [] and at_work.journal.leases() == (lease,)


def test_a_lost_lift_is_taken_back_once_slurm_answers_and_the_job_gets_no_other_change_before() -> None:
    cluster = cluster_of(LONGER)
    cluster.unreachable = True
    at_work = applier_on(cluster, lifted())
    with pytest.raises(SlurmUnavailableError):
        at_work.reconcile(cluster.snapshot())
    (waiting,) = at_work.journal.leases()
    cluster.unreachable = False

    at_work.return_due(cluster.now)

    assert waiting.lost == WHY and waiting.blocks_other_changes and waiting.is_due(TAKEN_AT)
    assert (cluster.jobs[9].nice, endings(at_work)) == (0, [Ending.TAKEN_BACK])


def test_a_job_requeued_between_two_rounds_loses_its_lift() -> None:
    cluster = cluster_of(replace(JOB, nice=-1007, submit_time=TAKEN_AT - 30.0))
    at_work = applier_on(cluster, lifted())

    found = at_work.reconcile(cluster.snapshot())

    assert [receipt.text for receipt in found.taken_back] == [f"the job {REQUEUED}"]
    assert cluster.jobs[9].nice == 0


def test_a_job_seen_as_started_and_requeued_loses_its_lift() -> None:
    cluster = cluster_of(make_job(9, gpus=1, nice=-1007, running_on=["n01"]))
    at_work = applier_on(cluster, lifted())
    at_work.reconcile(cluster.snapshot())
    cluster.jobs[9] = replace(JOB, nice=-1007)

    found = at_work.reconcile(cluster.snapshot())

    assert [receipt.text for receipt in found.taken_back] == [f"the job {REQUEUED}"]
    assert endings(at_work) == [Ending.NO_LONGER_PENDING, Ending.TAKEN_BACK]


def test_an_array_loses_its_lift_with_a_task_that_was_split_off_and_asks_for_more() -> None:
    array = replace(JOB, nice=-1007, array=ArrayRecord(array_job_id=9, waiting="1-9"))
    task = replace(array, job_id=10, array=ArrayRecord(array_job_id=9, task_id=0))
    cluster = cluster_of(array, task)
    at_work = applier_on(cluster, lifted(replace(array, nice=0)))
    at_work.reconcile(cluster.snapshot())
    kept = list(at_work.journal.leases())
    cluster.jobs[10] = replace(task, gang=replace(task.gang, per_job=(), per_node=(GpuCount(count=8),)))

    found = at_work.reconcile(cluster.snapshot())

    assert [lease.lost for lease in kept] == [""]
    assert [receipt.text[:22] for receipt in found.taken_back] == ["the job asks for 8 GPU"]


def test_an_intent_that_a_grown_job_shows_no_effect_of_is_reverted_only_if_it_comes_true() -> None:
    cluster = cluster_of(replace(LONGER, nice=0))
    at_work = applier_on(cluster, replace(lifted(state=LeaseState.INTENDED), applied_time=TAKEN_AT))
    at_work.reconcile(cluster.snapshot())
    early = list(cluster.sent)
    cluster.jobs[9] = LONGER

    at_work.reconcile(cluster.snapshot())

    assert (early, cluster.sent, cluster.jobs[9].nice) == ([], [LIFT.swapped()], 0)


def test_a_lift_that_slurmctld_took_back_from_a_grown_job_is_no_objection_of_its_user() -> None:
    cluster = cluster_of(replace(LONGER, nice=0))
    at_work = applier_on(cluster, lifted())

    found = at_work.reconcile(cluster.snapshot())

    (closed,) = at_work.journal.closed([9])
    assert (closed.ending, closed.lost, found.overruled, cluster.sent) == (Ending.TAKEN_BACK, WHY, (), [])
    assert at_work.journal.leases() == ()
