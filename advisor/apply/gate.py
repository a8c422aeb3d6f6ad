"""What is asked right before anything is sent."""

from typing import Protocol

from advisor.domain.job import Job
from advisor.domain.lease import Lease
from advisor.domain.plan import Recommendation


class Gate(Protocol):
    """Says, right before anything is sent, in plain words why it must not be sent now; None where it can be."""

    def against_change(self, change: Recommendation, job: Job) -> str | None:
        """Return why a change must not be applied now."""

    def against_return(self, lease: Lease) -> str | None:
        """Return why a change must not be taken back now."""


class OpenGate:
    """Lets everything pass, as for a person at the terminal."""

    def against_change(self, change: Recommendation, job: Job) -> str | None:  # noqa: ARG002  (the protocol's)
        """Let a change pass."""
        return None

    def against_return(self, lease: Lease) -> str | None:  # noqa: ARG002  (the protocol's)
        """Let a return pass."""
        return None
