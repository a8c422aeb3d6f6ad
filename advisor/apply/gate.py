"""Defines the gate, the last check before a change is sent."""

from typing import Protocol

from advisor.domain.job import Job
from advisor.domain.lease import Lease
from advisor.domain.plan import Recommendation


class Gate(Protocol):
    """Decides right before sending; returns the reason not to send now in plain words, or None to send."""

    def against_change(self, change: Recommendation, job: Job) -> str | None:
        """Return why a change must not be applied now; None if it can be."""

    def against_return(self, lease: Lease) -> str | None:
        """Return why a change must not be reverted now; None if it can be."""


class OpenGate:
    """A gate that is always open, as for a person at the terminal."""

    def against_change(self, change: Recommendation, job: Job) -> str | None:  # noqa: ARG002  (the protocol's)
        """Return None: every change can be applied."""
        return None

    def against_return(self, lease: Lease) -> str | None:  # noqa: ARG002  (the protocol's)
        """Return None: every change can be reverted."""
        return None
