"""Batches: all intents before the first change, one outcome for each, and the truth job by job after a kill."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from advisor.apply.applier import INTENT_GRACE_S, Applier
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Action, SetNice
from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.load import Allowance
from advisor.domain.memory import NOTHING_KNOWN, Memory
from advisor.domain.plan import Outcome, Receipt
from advisor.domain.snapshot import Snapshot
from advisor.errors import SlurmUnavailableError
from advisor.journal import SqliteJournal, opened
from tests.builders import TAKEN_AT, make_job, make_recommendation
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


class Narrow:
    """A gate with room for two changes, and for one revert."""

    def against_change(self, *_: object) -> None:
        """Let every change pass."""

    def against_return(self, _lease: Lease) -> None:
        """Let every return pass."""

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
