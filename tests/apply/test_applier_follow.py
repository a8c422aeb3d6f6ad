"""Applying: what becomes of changed jobs is stored once, and changes that no longer serve go back."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.apply.memory_journal import MemoryJournal
from advisor.apply.step import Reconciled, StepJournal
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Action, Lever, SetNice, SetTimeMin
from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.job import Job, JobState
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.memory import NOTHING_KNOWN, Memory
from advisor.domain.snapshot import Snapshot
from advisor.journal import SqliteJournal, opened
from advisor.journal.rows import PastStop
from advisor.journal.views import Done, RowQuery
from advisor.planning.counterfactual import Watched
from tests.apply.test_applier_gate import Shut
from tests.builders import TAKEN_AT, make_job, make_recommendation
from tests.fake_cluster import FakeCluster, held

NICE = SetNice(job_id=9, before=0, after=50)
APPLIED_TIME = TAKEN_AT - 59.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeing(Cycle):
    """A cycle that proposes changes and watches jobs as given."""

    changes: tuple[Action, ...] = ()
    seen: tuple[Watched, ...] = ()

    def judge(self, snapshot: Snapshot, memory: Memory = NOTHING_KNOWN) -> CycleRecord:
        """Return what is given."""
        return CycleRecord(
            snapshot=snapshot,
            memory=memory,
            forecasts=NO_FORECASTS,
            judged=tuple(map(make_recommendation, self.changes)),
            left_alone={},
            watched=self.seen,
        )


def applier_on(cluster: FakeCluster, cycle: Cycle, *leases: Lease, journal: StepJournal | None = None) -> Applier:
    """Return an applier with open leases in its journal."""
    applier = Applier(source=cluster, actuator=cluster, cycle=cycle, journal=journal or MemoryJournal())
    for lease in leases:
        applier.journal.keep(lease)
    return applier


def out(action: Action = NICE, *, due_in_s: float = 600.0) -> Lease:
    """Return a change that is out, and can delay its job by a minute."""
    lease = intended(action, APPLIED_TIME, added_delay_s=60.0)
    return replace(lease, state=LeaseState.OUT, due_time=TAKEN_AT + due_in_s)


def waiting(*job_ids: int) -> FakeCluster:
    """Return a cluster in which jobs wait."""
    return FakeCluster(jobs={job_id: make_job(job_id, gpus=1) for job_id in job_ids})


def running(start_time: float) -> Job:
    """Return the changed job, running."""
    return replace(make_job(9, gpus=1, running_on=["n01"]), start_time=start_time)


def start_time_of(job: Job | None, lease: Lease, ending: Ending = Ending.TAKEN_BACK) -> float | None:
    """Close a lease, let a step see its job, and return the start time that the journal has then."""
    cluster = FakeCluster(jobs={} if job is None else {9: job})
    applier = applier_on(cluster, Seeing(), lease)
    applier.journal.close(lease, ending, TAKEN_AT - 30.0)
    applier.step()
    (closed,) = applier.journal.closed([9])
    return closed.start_time


STARTED = TAKEN_AT - 10.0


@pytest.mark.parametrize(
    ("job", "start_time"),
    [
        pytest.param(running(STARTED), STARTED, id="runs"),
        pytest.param(replace(running(STARTED), state=JobState.SUSPENDED), STARTED, id="suspended"),
        pytest.param(None, TAKEN_AT, id="left the queue"),
        pytest.param(make_job(9, gpus=1), None, id="waits"),
        pytest.param(replace(make_job(9, gpus=1), start_time=TAKEN_AT + 60.0), None, id="waits for a planned start"),
        pytest.param(replace(running(STARTED), start_time=None), None, id="runs since an unknown instant"),
        pytest.param(running(APPLIED_TIME - 0.5), APPLIED_TIME - 0.5, id="in the second of the change"),
        pytest.param(running(APPLIED_TIME - 1.0), None, id="an earlier run"),
    ],
)
def test_step_stores_when_a_job_started_after_its_change_had_ended(job: Job | None, start_time: float | None) -> None:
    assert start_time_of(job, out()) == start_time


def test_start_is_stored_only_of_changes_that_can_have_delayed_it_and_once() -> None:
    harmless, known = replace(out(), added_delay_s=0.0), replace(out(), start_time=TAKEN_AT - 20.0)

    assert start_time_of(running(STARTED), harmless) is None
    assert start_time_of(running(STARTED), out(), Ending.NOT_APPLIED) is None
    assert start_time_of(running(STARTED), known) == TAKEN_AT - 20.0


def would_start(applier: Applier) -> list[float | None]:
    """Return since when the jobs of the open leases would run as submitted."""
    return [lease.would_start_time for lease in applier.journal.leases()]


def test_first_instant_at_which_a_job_would_run_as_submitted_is_stored_once(tmp_path: Path) -> None:
    cluster, nice = waiting(8, 9), replace(NICE, job_id=8)
    held(held(cluster, NICE), nice)
    not_yet, now = (
        Watched(job_id=8, would_start_time=None, over=frozenset()),
        Watched(job_id=9, would_start_time=TAKEN_AT, over=frozenset()),
    )
    later = replace(now, would_start_time=TAKEN_AT + 30.0)
    with opened(tmp_path / "journal.sqlite") as journal:
        applier = applier_on(cluster, Seeing(seen=(not_yet, now)), out(nice), out(), journal=journal)

        applier.step()
        first = would_start(applier)
        replace(applier, cycle=Seeing(seen=(not_yet, later))).step()

        assert first == would_start(applier) == [None, TAKEN_AT]
        (noted,) = [entry for entry in journal.audit() if entry.event == "would_start"]
        assert noted.detail == {"job_id": 9, "would_start_time": TAKEN_AT}


def over(*job_ids: int) -> tuple[Watched, ...]:
    """Return jobs whose change is over."""
    return tuple(Watched(job_id=job_id, would_start_time=None, over=frozenset({Lever.NICE})) for job_id in job_ids)


def test_change_that_is_over_goes_back_and_the_others_stay() -> None:
    cluster, nice = waiting(8, 9), replace(NICE, job_id=8)
    held(held(cluster, NICE), nice)
    applier = applier_on(cluster, Seeing(seen=over(9)), out(nice), out())

    step = applier.step()

    assert [receipt.action for receipt in step.reconciled.taken_back] == cluster.sent == [NICE.swapped()]
    assert [lease.job_id for lease in applier.journal.leases()] == [8]
    assert [lease.ending for lease in applier.journal.closed([9])] == [Ending.TAKEN_BACK]


def test_change_that_is_not_over_stays() -> None:
    cluster = held(waiting(9), NICE)
    applier = applier_on(cluster, Seeing(seen=(Watched(job_id=9, would_start_time=None, over=frozenset()),)), out())

    step = applier.step()

    assert step.reconciled == Reconciled() and cluster.sent == []


def test_return_that_failed_is_not_tried_twice_in_a_step() -> None:
    cluster = held(waiting(9), NICE)
    cluster.failing = {SetNice: "Slurm is busy"}
    applier = applier_on(cluster, Seeing(seen=over(9)), out(due_in_s=0.0))

    step = applier.step()

    assert [receipt.text for receipt in step.reconciled.taken_back] == ["Slurm is busy"]
    assert cluster.sent == [NICE.swapped()]


def test_return_that_the_gate_put_off_is_put_off_once_in_a_step() -> None:
    cluster = held(waiting(9), NICE)
    gate = Shut((9,))
    applier = replace(applier_on(cluster, Seeing(seen=over(9)), out(due_in_s=0.0)), gate=gate)

    step = applier.step()

    assert [receipt.action for receipt in step.reconciled.put_off] == [NICE.swapped()]
    assert len(gate.asked) == 1


def test_what_a_step_and_a_return_came_to_is_in_the_journal(tmp_path: Path) -> None:
    cluster = waiting(9)
    with opened(tmp_path / "journal.sqlite") as journal:
        applier = applier_on(cluster, Seeing(changes=(NICE,)), journal=journal)

        applier.step()
        applier.revert(cluster.snapshot())

        assert done(journal) == [
            (NICE.swapped(), Done.TAKEN_BACK),
            (NICE, Done.APPLIED),
            (NICE, Done.RECOMMENDED),
        ]


def done(journal: SqliteJournal) -> list[tuple[Action | PastStop, Done]]:
    """Return what the journal has of all cycles, newest first."""
    return [(change.action, change.done) for change in journal.changes(RowQuery())]


def test_job_that_is_not_wanted_does_not_keep_the_next_from_its_change() -> None:
    cluster = waiting(7, 8, 9)
    nices = tuple(replace(NICE, job_id=job_id) for job_id in (7, 8, 9))
    applier = replace(applier_on(cluster, Seeing(changes=nices)), wanted=lambda job, _: job.job_id != 8)

    step = applier.step()

    assert [receipt.action.job_id for receipt in step.applied] == [7, 9]


def test_intent_that_is_due_is_not_a_persons_to_take_back() -> None:
    cluster = waiting(9)
    applier = applier_on(cluster, Seeing(), replace(intended(NICE, APPLIED_TIME), due_time=TAKEN_AT - 1.0))

    applier.reconcile(cluster.snapshot())
    held(cluster, NICE)
    applier.reconcile(cluster.snapshot())

    assert [lease.ending for lease in applier.journal.closed([9])] == [Ending.TAKEN_BACK]


def test_revert_of_one_job_leaves_the_intents_of_others_to_the_advisor() -> None:
    cluster = waiting(8, 9)
    leases = [intended(replace(NICE, job_id=job_id), APPLIED_TIME) for job_id in (8, 9)]
    applier = applier_on(cluster, Seeing(), *leases)

    applier.revert(cluster.snapshot(), [9])

    assert [lease.by_person for lease in applier.journal.leases()] == [False, True]


def test_requeued_job_whose_field_was_changed_again_keeps_the_newer_lease() -> None:
    cluster = held(waiting(9), NICE)
    newer = replace(out(), applied_time=TAKEN_AT - 5.0)
    applier = applier_on(cluster, Seeing(), out())
    applier.journal.close(out(), Ending.NO_LONGER_PENDING, TAKEN_AT - 20.0)
    applier.journal.keep(newer)

    applier.reconcile(cluster.snapshot())

    assert applier.journal.leases() == (newer,)


def test_requeued_job_gets_back_what_stands_in_each_of_its_fields() -> None:
    soft = SetTimeMin(job_id=9, before=None, after=1800.0)
    cluster = held(held(waiting(9), NICE), soft)
    applier = applier_on(cluster, Seeing(), out(), out(soft))
    for lease in (out(soft), out()):
        applier.journal.close(lease, Ending.NO_LONGER_PENDING, TAKEN_AT - 20.0)

    applier.revert(cluster.snapshot())

    assert cluster.jobs[9].nice == 0 and cluster.jobs[9].time_min_s is None
