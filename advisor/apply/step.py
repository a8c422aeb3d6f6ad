"""The result of one step of the applier, and the journal that stores it."""

from dataclasses import dataclass
from typing import Protocol

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.lease import Lease
from advisor.domain.memory import Journal
from advisor.domain.plan import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """The outcome of a pass over the open leases: reverted or tried, overruled by others, and postponed.

    `put_off` holds the changes that are due to be reverted and cannot be sent now, each with the reason.
    """

    taken_back: tuple[Receipt, ...] = ()
    overruled: tuple[Lease, ...] = ()
    put_off: tuple[Receipt, ...] = ()

    def __add__(self, later: "Reconciled") -> "Reconciled":
        """Return the outcome of two passes, one after the other."""
        return Reconciled(
            taken_back=self.taken_back + later.taken_back,
            overruled=self.overruled + later.overruled,
            put_off=self.put_off + later.put_off,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One cycle and its actions: the changes reverted, judged and applied, in this order.

    `held_back` holds the changes that the rules accepted and the gate refused, each with the reason.
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
