"""Checks immediately before each change whether the daemon can send it, and what Slurm and the site allow."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Protocol

from advisor.apply.step import OpenGate
from advisor.backends.association_limits import AssociationLimits
from advisor.backends.confirmed_start import ConfirmedStart
from advisor.backends.privileges import Level, Privileges
from advisor.backends.process import Commands
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.lease import Lease
from advisor.domain.load import Allowance
from advisor.domain.mode import Mode, Modes
from advisor.domain.plan import Recommendation
from advisor.errors import AdvisorError
from advisor.site.pause_file import paused

# Returns a name, a colon and in plain words why a change must not be applied, or None if it can be.
ChangeCheck = Callable[[Recommendation, Job], str | None]


class Budget(Protocol):
    """Limits how much is sent to Slurm."""

    def room(self, wanted: int, *, returning: bool = False) -> Allowance:
        """Return how many of the wanted changes, or reverts, can be sent now."""


@dataclass(slots=True)
class RoundDeadline:
    """The instant until which the daemon sends requests to Slurm: the end of its round, or the stop of the daemon."""

    stopping: threading.Event = field(default_factory=threading.Event)
    until: float = float("inf")  # on the monotonic clock

    def start(self, for_s: float) -> None:
        """Begin a round with a time limit."""
        self.until = time.monotonic() + for_s

    def exhausted(self) -> str | None:
        """Return why nothing more is sent in this round; None while there is time."""
        if self.stopping.is_set():
            return "stopping: sadvised was asked to stop"
        if time.monotonic() >= self.until:
            return "deadline: the round has used up its time"
        return None


@dataclass(slots=True, kw_only=True)
class SiteGate:
    """A gate made of the site's settings and the daemon's rights.

    `held_to` maps each cause that limits the whole daemon to recommendations, such as an open breaker, to its reason.
    `checks` judge one change; `budget` judges how many more can be sent.
    """

    runtime_folder: Path
    modes: Modes
    patience: RoundDeadline
    held_to: Mapping[str, str] = field(default_factory=dict)
    checks: Sequence[ChangeCheck] = ()
    budget: Budget = field(default_factory=OpenGate)

    def against_change(self, change: Recommendation, job: Job) -> str | None:
        """Return why a change must not be applied now; None if it can be."""
        mode = self.modes.of(job)
        if mode is not Mode.APPLY:
            return f"mode: {mode} for this job"
        for name, text in self.held_to.items():
            return f"{name}: {text}"
        pause = paused(self.runtime_folder)
        stopped = self.patience.exhausted() or (None if pause is None else f"paused: {pause.text}")
        if stopped is not None:
            return stopped
        try:
            objection = next((text for text in (check(change, job) for check in self.checks) if text is not None), None)
        except AdvisorError as err:
            # If a check could not be made, the change is not known to be allowed.
            return f"unknown: {err}"
        return objection

    def against_return(self, lease: Lease) -> str | None:  # noqa: ARG002  (the protocol's)
        """Return why a change must not be reverted now; None if it can be. Only a pause that freezes stops this."""
        pause = paused(self.runtime_folder)
        frozen = None if pause is None or not pause.freezes else f"paused: {pause.text}"
        return self.patience.exhausted() or frozen

    def room(self, wanted: int, *, returning: bool = False) -> Allowance:
        """Return how many of the wanted changes, or reverts, the budget has room for."""
        return self.budget.room(wanted, returning=returning)


def rights(commands: Commands) -> tuple[ChangeCheck, ...]:
    """Return the checks of privileges, and after them of smaller sizes, and of the limits that bind a job's size.

    The limits come last, since what they let pass counts as used until they are read again.
    """
    privileges = Privileges(commands)
    limits = AssociationLimits(commands, privileged=lambda: privileges.read().level is Level.OPERATOR)
    return privileges.against, ConfirmedStart(commands).against, limits.against
