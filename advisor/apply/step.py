"""The result of one step of the applier, the journal that stores it, and the gate, asked before each change is sent."""

from typing import Protocol

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.lease import Lease
from advisor.domain.load import Allowance
from advisor.domain.memory import Journal
from advisor.domain.plan import Receipt, Recommendation


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


class Gate(Protocol):
    """Decides right before sending; returns the reason not to send now in plain words, or None to send."""

    def against_change(self, change: Recommendation, job: Job) -> str | None:
        """Return why a change must not be applied now; None if it can be."""

    def room(self, wanted: int, *, returning: bool = False) -> Allowance:
        """Return how many of the wanted changes, or reverts, can be sent now."""

    def against_return(self, lease: Lease) -> str | None:
        """Return why a change must not be reverted now; None if it can be."""


class OpenGate:
    """A gate that is always open, as for a person at the terminal."""

    def against_change(self, change: Recommendation, job: Job) -> str | None:  # noqa: ARG002  (the protocol's)
        """Return None: every change can be applied."""
        return None

    def room(self, wanted: int, *, returning: bool = False) -> Allowance:  # noqa: ARG002  (the protocol's)
        """Return room for all."""
        return Allowance(changes=wanted)

    def against_return(self, lease: Lease) -> str | None:  # noqa: ARG002  (the protocol's)
        """Return None: every change can be reverted."""
        return None
