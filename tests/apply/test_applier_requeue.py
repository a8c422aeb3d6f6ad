"""Applying: what a started job brings back when it is requeued is ours again, and is taken back."""

from dataclasses import dataclass, field, replace

import pytest

from advisor.apply.applier import INTENT_GRACE_S, Applier
from advisor.cycle import Cycle
from advisor.domain.actions import Action, NodeRange, SetNice, SetNodeRange
from advisor.domain.job import ArrayRecord, Job, JobState
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.plan import Outcome, Receipt
from advisor.errors import SlurmUnavailableError
from tests.apply.test_applier import applier_on, endings, lent, running
from tests.builders import TAKEN_AT, make_job
from tests.fake_cluster import HOLD, FakeCluster, fragmented, gang, held

NICE = SetNice(job_id=9, before=0, after=50)


def started_and_back(at_work: Applier, cluster: FakeCluster) -> None:
    """Let the job start with whatever it holds, let the advisor see it, and requeue it as Slurm does."""
    waiting = cluster.jobs[9]
    cluster.jobs[9] = replace(running(), gang=waiting.gang, nice=waiting.nice)
    at_work.reconcile(cluster.snapshot())
    cluster.jobs[9] = waiting


def test_a_requeued_job_gets_back_what_its_user_had() -> None:
    cluster = held(fragmented())
    at_work = applier_on(cluster, lent(due_in_s=0.0))
    started_and_back(at_work, cluster)

    found = at_work.reconcile(cluster.snapshot())

    assert [receipt.action for receipt in found.taken_back] == [HOLD.swapped()]
    assert cluster.jobs[9].gang.nodes_max == 4
    assert endings(at_work) == [Ending.NO_LONGER_PENDING, Ending.TAKEN_BACK]


def test_the_delay_of_a_requeued_job_is_booked_once() -> None:
    cluster = held(fragmented())
    at_work = applier_on(cluster, replace(lent(), added_delay_s=60.0))
    started_and_back(at_work, cluster)

    at_work.reconcile(cluster.snapshot())

    (lease,) = at_work.journal.leases()
    (past,) = at_work.journal.closed([9])
    assert (lease.state, lease.added_delay_s, past.added_delay_s) == (LeaseState.OUT, 0.0, 60.0)


def test_a_clock_set_back_does_not_hide_what_a_requeued_job_brings_back() -> None:
    cluster = held(fragmented(), NICE)
    at_work = applier_on(cluster, intended(NICE, TAKEN_AT))
    at_work.revert(cluster.snapshot())
    cluster.now -= 43_200.0
    held(cluster, NICE)
    at_work.journal.keep(replace(intended(NICE, cluster.now), state=LeaseState.OUT))
    started_and_back(at_work, cluster)

    at_work.reconcile(cluster.snapshot())

    assert [(lease.action, lease.state) for lease in at_work.journal.leases()] == [(NICE, LeaseState.OUT)]
    assert endings(at_work) == [Ending.REVERTED, Ending.NO_LONGER_PENDING]


@pytest.mark.parametrize("nodes_max", [4, 2], ids=["as its user had it", "changed since"])
def test_a_requeued_job_without_our_value_stays_as_it_is(nodes_max: int) -> None:
    cluster = held(fragmented())
    at_work = applier_on(cluster, lent(due_in_s=0.0))
    started_and_back(at_work, cluster)
    cluster.jobs[9] = gang(nodes_max=nodes_max)

    at_work.revert(cluster.snapshot())

    assert at_work.journal.leases() == ()
    assert cluster.sent == []


def test_an_intent_that_a_job_started_with_gives_way_to_what_was_out_before_it() -> None:
    cluster = held(fragmented(), NICE)
    first = replace(intended(NICE, TAKEN_AT - 600.0), state=LeaseState.OUT)
    second = intended(replace(NICE, before=50, after=80), TAKEN_AT - INTENT_GRACE_S, previous=first)
    at_work = applier_on(cluster, second)
    started_and_back(at_work, cluster)

    at_work.revert(cluster.snapshot())

    assert cluster.sent == [NICE.swapped()]
    assert cluster.jobs[9].nice == 0
    assert at_work.journal.leases() == ()


def test_a_return_that_a_job_started_before_is_finished_when_it_is_back() -> None:
    cluster = held(fragmented(), NICE)
    at_work = applier_on(cluster, lent(NICE, state=LeaseState.RETURNING, due_in_s=None))
    started_and_back(at_work, cluster)

    at_work.reconcile(cluster.snapshot())

    assert cluster.jobs[9].nice == 0


TWO_NODES = SetNodeRange(job_id=9, before=HOLD.before, after=NodeRange(low=1, high=2))


def test_a_hold_whose_upper_end_slurm_hides_is_taken_back_when_due() -> None:
    cluster = held(fragmented(), TWO_NODES)
    at_work = applier_on(cluster, lent(TWO_NODES, due_in_s=0.0))
    cluster.ends_hidden.add(9)

    at_work.reconcile(cluster.snapshot())

    assert cluster.jobs[9].gang.nodes_max == 4
    assert endings(at_work) == [Ending.TAKEN_BACK]


def test_a_change_that_comes_true_after_its_job_had_started_and_was_requeued_is_ours() -> None:
    cluster = fragmented()
    cluster.lags = True
    at_work = applier_on(cluster)
    with pytest.raises(SlurmUnavailableError):
        at_work.step()
    cluster.lags = False
    started_and_back(at_work, cluster)
    at_work.reconcile(cluster.snapshot())
    cluster.arrive()

    at_work.revert(cluster.snapshot())

    assert cluster.sent == [HOLD, HOLD.swapped()]
    assert endings(at_work) == [Ending.REVERTED]


def test_a_hold_still_under_way_to_a_slurm_that_hides_the_upper_end_is_taken_back_after_it_came() -> None:
    cluster = fragmented()
    cluster.lags = True
    at_work = applier_on(cluster)
    with pytest.raises(SlurmUnavailableError):
        at_work.step()
    cluster.lags, cluster.ends_hidden = False, {9}

    at_work.revert(cluster.snapshot())
    cluster.arrive()
    early = list(cluster.sent)
    cluster.now += INTENT_GRACE_S
    at_work.revert(cluster.snapshot())

    assert early == [HOLD]
    assert cluster.sent == [HOLD, HOLD.swapped()]
    assert cluster.jobs[9].gang.nodes_max == 4
    assert endings(at_work) == [Ending.REVERTED]


def test_a_person_who_sets_both_ends_alike_wins_when_the_hold_is_due() -> None:
    cluster = fragmented()
    cluster.jobs[9] = gang(nodes_max=1)
    at_work = applier_on(cluster, lent(TWO_NODES, due_in_s=0.0))

    found = at_work.reconcile(cluster.snapshot())

    assert [receipt.is_overruled for receipt in found.taken_back] == [True]
    assert [lease.state for lease in at_work.journal.leases()] == [LeaseState.HANDS_OFF]
    assert cluster.jobs[9].gang.nodes_max == 1


def test_an_intent_that_a_person_wants_back_is_taken_back_once_it_comes_true() -> None:
    cluster = fragmented()
    at_work = applier_on(cluster, intended(NICE, TAKEN_AT))
    at_work.revert(cluster.snapshot())
    held(cluster, NICE)

    at_work.reconcile(cluster.snapshot())

    assert cluster.jobs[9].nice == 0
    assert endings(at_work) == [Ending.REVERTED]


@dataclass
class Starting(FakeCluster):
    """A cluster that starts a job right after it took a change, so that nobody can read the change back."""

    waiting: dict[int, JobState] = field(default_factory=dict)

    def apply(self, action: Action) -> Receipt:
        """Take the change, start the job, and say what the reading back says."""
        super().apply(action)
        self.waiting[action.job_id] = self.jobs[action.job_id].state
        self.jobs[action.job_id] = replace(running(), gang=self.jobs[action.job_id].gang)
        return Receipt(action=action, outcome=Outcome.FAILED, text="the job is not pending", is_settled=False)


def test_a_change_that_nobody_could_read_back_is_known_when_the_job_comes_back() -> None:
    cluster = Starting(jobs=fragmented().jobs)
    at_work = Applier(source=cluster, actuator=cluster, cycle=Cycle())
    at_work.step()
    intents = at_work.journal.leases()
    at_work.reconcile(cluster.snapshot())
    cluster.jobs[9] = held(fragmented()).jobs[9]

    at_work.reconcile(cluster.snapshot())

    assert [lease.state for lease in intents] == [LeaseState.INTENDED]
    assert [(lease.action, lease.state) for lease in at_work.journal.leases()] == [(HOLD, LeaseState.OUT)]


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


@pytest.mark.parametrize(
    ("fault", "told", "is_open"), [("pyslurm hangs", False, True), ("", False, False), ("pyslurm hangs", True, False)]
)
def test_the_lease_of_a_task_lasts_while_text_merges_it_in_place_of_pyslurm(
    fault: str, told: bool, is_open: bool
) -> None:
    cluster = cluster_of(waiting(0), requeued(12, 4))
    at_work = replace(applier_on(cluster, lent(replace(LIFT, job_id=12))), named=cluster)
    whole = cluster.snapshot()
    merged = replace(whole, jobs=whole.jobs[:1], reader_fault=fault, splits_told=told)

    at_work.reconcile(merged)

    assert [lease.job_id for lease in at_work.journal.leases()] == [12] * is_open


def test_the_open_lease_of_an_array_stands_for_its_requeued_tasks() -> None:
    cluster = cluster_of(waiting(-1000), requeued(10, 2))
    at_work = remembering(cluster, over(), open_lease=lent(LIFT))

    at_work.reconcile(cluster.snapshot())

    assert [(lease.job_id, lease.state) for lease in at_work.journal.leases()] == [(9, LeaseState.OUT)]
    assert cluster.sent == []
