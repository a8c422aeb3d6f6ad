"""Applying to arrays: the lease lasts until the last task starts, and what a requeued task brings back is reverted."""

from dataclasses import replace

import pytest

from advisor.apply.applier import Applier
from advisor.domain.actions import SetNice
from advisor.domain.job import ArrayRecord, Job
from advisor.domain.lease import Ending, Lease, LeaseState
from tests.apply.test_applier import applier_on, endings, lent
from tests.builders import make_job
from tests.fake_cluster import FakeCluster

LIFT = SetNice(job_id=9, before=0, after=-1000)
REST = ArrayRecord(array_job_id=9, waiting="4-6")


def waiting(nice: int, array: ArrayRecord = REST) -> Job:
    return make_job(9, gpus=1, nice=nice, array=array)


def started(job_id: int, task_id: int, nice: int = -1000) -> Job:
    array = ArrayRecord(array_job_id=9, task_id=task_id)
    return make_job(job_id, gpus=1, nice=nice, array=array, running_on=["n01"])


def requeued(job_id: int, task_id: int, nice: int = -1000) -> Job:
    return make_job(job_id, gpus=1, nice=nice, array=ArrayRecord(array_job_id=9, task_id=task_id))


def cluster_of(*jobs: Job) -> FakeCluster:
    return FakeCluster(jobs={job.job_id: job for job in jobs})


def over(ending: Ending = Ending.NO_LONGER_PENDING, lift: SetNice = LIFT) -> tuple[Lease, Ending]:
    return lent(lift, due_in_s=0.0), ending


def remembering(cluster: FakeCluster, *past: tuple[Lease, Ending], open_lease: Lease | None = None) -> Applier:
    """Return an applier with ended leases in its journal, and perhaps an open one."""
    at_work = applier_on(cluster)
    for lease, ending in past:
        at_work.journal.keep(lease)
        at_work.journal.close(lease, ending, cluster.now - 30.0)
    if open_lease is not None:
        at_work.journal.keep(open_lease)
    return at_work


def test_a_lease_lasts_while_tasks_of_the_array_start_and_ends_with_the_last() -> None:
    cluster = cluster_of(waiting(-1000), started(10, 2), started(11, 3))
    at_work = applier_on(cluster, lent(LIFT))
    at_work.reconcile(cluster.snapshot())
    early = endings(at_work)
    cluster.jobs |= {9: waiting(-1000, ArrayRecord(array_job_id=9, task_id=6)), 12: started(12, 4)}
    at_work.reconcile(cluster.snapshot())
    late = endings(at_work)
    cluster.jobs[9] = started(9, 6)

    at_work.reconcile(cluster.snapshot())

    assert (early, late, endings(at_work)) == ([], [], [Ending.NO_LONGER_PENDING])
    assert cluster.sent == []


@pytest.mark.parametrize("ending", [Ending.NO_LONGER_PENDING, Ending.TAKEN_BACK, Ending.REVERTED])
def test_a_task_that_started_lifted_loses_the_lift_when_it_is_requeued(ending: Ending) -> None:
    cluster = cluster_of(requeued(10, 2), requeued(11, 3, nice=0), started(12, 4))
    at_work = remembering(cluster, over(ending))

    found = at_work.reconcile(cluster.snapshot())

    assert [receipt.action for receipt in found.taken_back] == [SetNice(job_id=10, before=-1000, after=0)]
    assert (cluster.jobs[10].nice, endings(at_work, 10)) == (0, [Ending.TAKEN_BACK])
    assert endings(at_work) == [ending]


def test_a_task_keeps_what_a_person_gave_it() -> None:
    cluster = cluster_of(requeued(10, 2, nice=-30))
    at_work = remembering(cluster, over())

    at_work.reconcile(cluster.snapshot())

    assert (cluster.sent, at_work.journal.leases()) == ([], ())


def test_a_task_can_hold_the_nice_of_an_earlier_lift() -> None:
    cluster = cluster_of(requeued(10, 2, nice=-500))
    at_work = remembering(cluster, over(Ending.TAKEN_BACK, replace(LIFT, after=-500)), over())

    at_work.reconcile(cluster.snapshot())

    assert cluster.sent == [SetNice(job_id=10, before=-500, after=0)]


def test_a_change_that_took_no_effect_left_nothing_on_the_tasks() -> None:
    cluster = cluster_of(requeued(10, 2))
    at_work = remembering(cluster, over(Ending.NOT_APPLIED))

    at_work.reconcile(cluster.snapshot())

    assert (cluster.sent, at_work.journal.leases()) == ([], ())


def test_a_task_that_cannot_be_read_gets_no_lease() -> None:
    cluster = cluster_of(replace(requeued(10, 2), unseen=("nice",)))
    at_work = remembering(cluster, over())

    at_work.reconcile(cluster.snapshot())

    assert at_work.journal.leases() == ()


def test_the_open_lease_of_an_array_stands_for_its_requeued_tasks() -> None:
    cluster = cluster_of(waiting(-1000), requeued(10, 2))
    at_work = remembering(cluster, over(), open_lease=lent(LIFT))

    at_work.reconcile(cluster.snapshot())

    assert [(lease.job_id, lease.state) for lease in at_work.journal.leases()] == [(9, LeaseState.OUT)]
    assert cluster.sent == []
