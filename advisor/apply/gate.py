"""Defines the gate, the last check before a change is sent."""

from typing import Protocol

from advisor.domain.job import Job
from advisor.domain.lease import Lease
from advisor.domain.load import Allowance
from advisor.domain.plan import Recommendation


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
