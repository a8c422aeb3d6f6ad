"""Batches: all intents before the first change, one outcome for each, and the truth job by job after a kill."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from advisor.apply.applier import INTENT_GRACE_S, Applier
from advisor.apply.step import OpenGate
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Action, SetNice
from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.gang import GpuCount
from advisor.domain.job import ArrayRecord, Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.load import Allowance
from advisor.domain.memory import NOTHING_KNOWN, Memory
from advisor.domain.plan import Outcome, Receipt
from advisor.domain.request import REQUEUED, request_of
from advisor.domain.snapshot import Snapshot
from advisor.errors import SlurmUnavailableError
from advisor.journal import SqliteJournal, opened
from tests.apply.test_applier import applier_on as applier_with
from tests.apply.test_applier import endings
from tests.builders import HOUR_S, TAKEN_AT, make_job, make_recommendation
from tests.fake_cluster import FakeCluster

JOBS = (1, 2, 3)
NICES = tuple(SetNice(job_id=job_id, before=0, after=10 * job_id) for job_id in JOBS)
STATES = dict.fromkeys(JOBS, LeaseState.OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposing(Cycle):
    """A cycle that proposes what is given, to be reverted after ten minutes."""

    changes: tuple[Action, ...] = NICES

    def judge(self, snapshot: Snapshot, memory: Memory = NOTHING_KNOWN) -> CycleRecord:
        """Propose the changes of jobs that have none."""
        proposed = [
            replace(make_recommendation(change), revert_after_s=600.0)
            for change in self.changes
            if change.job_id not in memory.outstanding
        ]
        return CycleRecord(
            snapshot=snapshot, memory=memory, forecasts=NO_FORECASTS, judged=tuple(proposed), left_alone={}
        )


@dataclass
class Watched(FakeCluster):
    """A cluster that keeps what the journal held when a batch came, and dies after some of its changes."""

    journal: SqliteJournal | None = None
    dies_after: int | None = None
    known: list[dict[int, LeaseState]] = field(default_factory=list)

    def apply_all(self, changes: Sequence[Action]) -> tuple[Receipt, ...]:
        """Look at the journal, then make the changes one after the other."""
        assert self.journal is not None
        self.known.append({lease.job_id: lease.state for lease in self.journal.leases()})
        receipts = [self.apply(change) for change in changes[: self.dies_after]]
        if self.dies_after is not None:
            raise SlurmUnavailableError("no answer")
        return tuple(receipts)


@pytest.fixture
def cluster() -> Watched:
    return Watched(jobs={job_id: make_job(job_id, gpus=1) for job_id in JOBS})


def nices(cluster: Watched) -> list[int]:
    return [cluster.jobs[job_id].nice for job_id in JOBS]


def applier_on(cluster: Watched, journal: SqliteJournal) -> Applier:
    cluster.journal = journal
    return Applier(source=cluster, actuator=cluster, cycle=Proposing(), journal=journal, named=cluster)


def test_all_intents_are_written_before_the_first_change_and_all_leases_after(cluster: Watched, tmp_path: Path) -> None:
    with opened(tmp_path / "journal.sqlite") as journal:
        step = applier_on(cluster, journal).step()

        assert cluster.known == [dict.fromkeys(JOBS, LeaseState.INTENDED)]
        assert {lease.job_id: lease.state for lease in journal.leases()} == STATES
    assert [receipt.outcome for receipt in step.applied] == [Outcome.APPLIED] * 3
    assert nices(cluster) == [10, 20, 30]


def test_what_is_due_goes_back_in_one_batch(cluster: Watched, tmp_path: Path) -> None:
    with opened(tmp_path / "journal.sqlite") as journal:
        at_work = applier_on(cluster, journal)
        at_work.step()
        cluster.now += 601.0
        reconciled = at_work.reconcile(cluster.snapshot())

        assert cluster.known[1:] == [dict.fromkeys(JOBS, LeaseState.RETURNING)]
        assert journal.leases() == ()
    assert [receipt.action for receipt in reconciled.taken_back] == [nice.swapped() for nice in NICES]
    assert nices(cluster) == [0, 0, 0]


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_after_a_batch_cut_short_the_truth_is_found_job_by_job(cluster: Watched, tmp_path: Path, done: int) -> None:
    cluster.dies_after = done
    with opened(tmp_path / "journal.sqlite") as journal:
        with pytest.raises(SlurmUnavailableError):
            applier_on(cluster, journal).step()
        intents = [lease.state for lease in journal.leases()]
        cluster.now += INTENT_GRACE_S
        applier_on(cluster, journal).reconcile(cluster.snapshot())
        left = {lease.job_id: lease.state for lease in journal.leases()}
        endings = [lease.ending for lease in journal.closed(JOBS)]

    assert intents == [LeaseState.INTENDED] * 3
    assert left == dict.fromkeys(JOBS[:done], LeaseState.OUT)
    assert endings == [Ending.NOT_APPLIED] * (3 - done)


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_after_returns_cut_short_the_rest_goes_back_next(cluster: Watched, tmp_path: Path, done: int) -> None:
    with opened(tmp_path / "journal.sqlite") as journal:
        at_work = applier_on(cluster, journal)
        at_work.step()
        cluster.dies_after = done
        with pytest.raises(SlurmUnavailableError):
            at_work.revert(at_work.leased())
        cluster.dies_after = None
        at_work.return_due(cluster.now)

        assert journal.leases() == ()
        assert [lease.ending for lease in journal.closed(JOBS)] == [Ending.REVERTED] * 3
    assert nices(cluster) == [0, 0, 0]


class Narrow(OpenGate):
    """A gate with room for two changes, and for one revert."""

    def room(self, wanted: int, *, returning: bool = False) -> Allowance:
        """Leave room for a few."""
        return Allowance(changes=min(wanted, 1 if returning else 2), text="budget: full")


def test_what_finds_no_room_is_held_back_and_put_off(cluster: Watched, tmp_path: Path) -> None:
    with opened(tmp_path / "journal.sqlite") as journal:
        at_work = replace(applier_on(cluster, journal), gate=Narrow())
        step = at_work.step()
        cluster.now += 601.0
        reconciled = at_work.reconcile(cluster.snapshot())

        assert len(journal.leases()) == 1
    assert [receipt.action.job_id for receipt in step.applied] == [1, 2]
    assert [(receipt.action.job_id, receipt.text) for receipt in step.held_back] == [(3, "budget: full")]
    assert [receipt.action.job_id for receipt in reconciled.taken_back] == [1]
    assert [(receipt.action.job_id, receipt.text) for receipt in reconciled.put_off] == [(2, "budget: full")]


def test_the_jobs_of_all_leases_are_read_and_those_that_started_with_one(cluster: Watched, tmp_path: Path) -> None:
    with opened(tmp_path / "journal.sqlite") as journal:
        at_work = applier_on(cluster, journal)
        at_work.step()
        journal.close(intended(SetNice(job_id=7, before=0, after=1), TAKEN_AT), Ending.NO_LONGER_PENDING, TAKEN_AT)
        journal.close(intended(SetNice(job_id=8, before=0, after=1), TAKEN_AT), Ending.TAKEN_BACK, TAKEN_AT)

        at_work.leased()

    assert cluster.read_by_id == [frozenset({1, 2, 3, 7})]


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
    at_work = applier_with(cluster, lifted())

    found = at_work.reconcile(cluster.snapshot())

    (closed,) = at_work.journal.closed([9])
    assert [(receipt.action, receipt.outcome, receipt.text) for receipt in found.taken_back] == [
        (LIFT.swapped(), Outcome.APPLIED, f"the job {WHY}")
    ]
    assert (closed.ending, closed.lost, cluster.jobs[9].nice) == (Ending.TAKEN_BACK, WHY, 0)


def test_what_slurm_says_against_taking_back_a_lost_lift_is_told() -> None:
    cluster = cluster_of(LONGER)
    cluster.failing = {SetNice: "Slurm is busy"}
    at_work = applier_with(cluster, lifted())

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
    at_work = applier_with(cluster, lease)

    at_work.reconcile(cluster.snapshot())

    assert cluster.sent == [] and at_work.journal.leases() == (lease,)


def test_a_lost_lift_is_taken_back_once_slurm_answers_and_the_job_gets_no_other_change_before() -> None:
    cluster = cluster_of(LONGER)
    cluster.unreachable = True
    at_work = applier_with(cluster, lifted())
    with pytest.raises(SlurmUnavailableError):
        at_work.reconcile(cluster.snapshot())
    (waiting,) = at_work.journal.leases()
    cluster.unreachable = False

    at_work.return_due(cluster.now)

    assert waiting.lost == WHY and waiting.blocks_other_changes and waiting.is_due(TAKEN_AT)
    assert (cluster.jobs[9].nice, endings(at_work)) == (0, [Ending.TAKEN_BACK])


def test_a_job_requeued_between_two_rounds_loses_its_lift() -> None:
    cluster = cluster_of(replace(JOB, nice=-1007, submit_time=TAKEN_AT - 30.0))
    at_work = applier_with(cluster, lifted())

    found = at_work.reconcile(cluster.snapshot())

    assert [receipt.text for receipt in found.taken_back] == [f"the job {REQUEUED}"]
    assert cluster.jobs[9].nice == 0


def test_a_job_seen_as_started_and_requeued_loses_its_lift() -> None:
    cluster = cluster_of(make_job(9, gpus=1, nice=-1007, running_on=["n01"]))
    at_work = applier_with(cluster, lifted())
    at_work.reconcile(cluster.snapshot())
    cluster.jobs[9] = replace(JOB, nice=-1007)

    found = at_work.reconcile(cluster.snapshot())

    assert [receipt.text for receipt in found.taken_back] == [f"the job {REQUEUED}"]
    assert endings(at_work) == [Ending.NO_LONGER_PENDING, Ending.TAKEN_BACK]


def test_an_array_loses_its_lift_with_a_task_that_was_split_off_and_asks_for_more() -> None:
    array = replace(JOB, nice=-1007, array=ArrayRecord(array_job_id=9, waiting="1-9"))
    task = replace(array, job_id=10, array=ArrayRecord(array_job_id=9, task_id=0))
    cluster = cluster_of(array, task)
    at_work = applier_with(cluster, lifted(replace(array, nice=0)))
    at_work.reconcile(cluster.snapshot())
    kept = list(at_work.journal.leases())
    cluster.jobs[10] = replace(task, gang=replace(task.gang, per_job=(), per_node=(GpuCount(count=8),)))

    found = at_work.reconcile(cluster.snapshot())

    assert [lease.lost for lease in kept] == [""]
    assert [receipt.text[:22] for receipt in found.taken_back] == ["the job asks for 8 GPU"]


def test_an_intent_that_a_grown_job_shows_no_effect_of_is_reverted_only_if_it_comes_true() -> None:
    cluster = cluster_of(replace(LONGER, nice=0))
    at_work = applier_with(cluster, replace(lifted(state=LeaseState.INTENDED), applied_time=TAKEN_AT))
    at_work.reconcile(cluster.snapshot())
    early = list(cluster.sent)
    cluster.jobs[9] = LONGER

    at_work.reconcile(cluster.snapshot())

    assert (early, cluster.sent, cluster.jobs[9].nice) == ([], [LIFT.swapped()], 0)


def test_a_lift_that_slurmctld_took_back_from_a_grown_job_is_no_objection_of_its_user() -> None:
    cluster = cluster_of(replace(LONGER, nice=0))
    at_work = applier_with(cluster, lifted())

    found = at_work.reconcile(cluster.snapshot())

    (closed,) = at_work.journal.closed([9])
    assert (closed.ending, closed.lost, found.overruled, cluster.sent) == (Ending.TAKEN_BACK, WHY, (), [])
    assert at_work.journal.leases() == ()
