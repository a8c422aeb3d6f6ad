"""Runs steps that are stored in a journal: the cycle before any change is sent, the receipts right after."""

from collections.abc import Collection
from dataclasses import replace

from advisor.apply.applier import Applier, Reconciled, Step
from advisor.cycle import CycleRecord
from advisor.domain.snapshot import Snapshot
from advisor.journal.store import SqliteJournal


def kept_step(applier: Applier, journal: SqliteJournal, snapshot: Snapshot | None = None) -> Step:
    """Run a step of an applier and store it in a journal; raises what the step and the journal raise."""
    numbers: list[int] = []

    def planned(record: CycleRecord) -> None:
        numbers.append(journal.record(record, applier.cycle))

    step = replace(applier, journal=journal, planned=planned).step(snapshot)
    journal.receipts(numbers[0], step)
    return step


def kept_revert(
    applier: Applier, journal: SqliteJournal, snapshot: Snapshot, job_ids: Collection[int] | None = None
) -> Reconciled:
    """Revert changes for a person and store that in a journal; raises what the revert and the journal raise."""
    reconciled = replace(applier, journal=journal).revert(snapshot, job_ids)
    journal.returns(snapshot.taken_at, reconciled)
    return reconciled
