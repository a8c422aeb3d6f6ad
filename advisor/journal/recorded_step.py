"""Steps that a journal keeps whole: the cycle before anything of it is sent, what was done right after."""

from collections.abc import Collection
from dataclasses import replace

from advisor.apply.applier import Applier, Reconciled, Step
from advisor.cycle import CycleRecord
from advisor.domain.snapshot import Snapshot
from advisor.journal.store import SqliteJournal


def kept_step(applier: Applier, journal: SqliteJournal, snapshot: Snapshot | None = None) -> Step:
    """Run a step of an applier with a journal, which keeps it; raises what the step and the journal raise."""
    numbers: list[int] = []

    def planned(record: CycleRecord) -> None:
        numbers.append(journal.record(record, applier.cycle))

    step = replace(applier, journal=journal, planned=planned).step(snapshot)
    journal.receipts(numbers[0], step)
    return step


def kept_revert(
    applier: Applier, journal: SqliteJournal, snapshot: Snapshot, job_ids: Collection[int] | None = None
) -> Reconciled:
    """Take changes back for a person, which a journal keeps; raises what that and the journal raise."""
    found = replace(applier, journal=journal).revert(snapshot, job_ids)
    journal.returns(snapshot.taken_at, found)
    return found
