"""What one step of the applier did, and the journal that keeps it."""

from dataclasses import dataclass
from typing import Protocol

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.lease import Lease
from advisor.domain.memory import Journal
from advisor.domain.plan import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What became of the open leases: those taken back or tried, and those that somebody else overruled.

    `put_off` is what was to be taken back and may not be sent now, each with why.
    """

    taken_back: tuple[Receipt, ...] = ()
    overruled: tuple[Lease, ...] = ()
    put_off: tuple[Receipt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One cycle with what was done: what was taken back, what was judged, and what was applied, in order.

    `held_back` is what no rule refused and the gate did, each with why.
    """

    record: CycleRecord
    reconciled: Reconciled
    applied: tuple[Receipt, ...]
    held_back: tuple[Receipt, ...] = ()


class StepJournal(Journal, Protocol):
    """A journal that also keeps what each step saw, planned and did."""

    def record(self, record: CycleRecord, cycle: Cycle) -> int:
        """Write down a cycle before anything of it is sent, and return its number."""

    def receipts(self, cycle_id: int, step: Step) -> None:
        """Write down what was done in a cycle."""

    def returns(self, time: float, reconciled: Reconciled) -> None:
        """Write down what was taken back outside of a cycle."""
