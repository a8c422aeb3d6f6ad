"""Checks immediately before each change whether the daemon can send it."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor.daemon.pause_file import paused
from advisor.domain.job import Job
from advisor.domain.lease import Lease
from advisor.domain.mode import Mode, Modes
from advisor.domain.plan import Recommendation
from advisor.errors import AdvisorError

# Says in plain words, after a name and a colon, why a change must not be applied; None where it may.
ChangeCheck = Callable[[Recommendation, Job], str | None]
AnyCheck = Callable[[], str | None]


@dataclass(slots=True)
class RoundDeadline:
    """Until when the daemon talks to Slurm: to the end of its round, and no longer than it is wanted."""

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
    """The gate that a site's own settings and rights make.

    `held_to` maps what holds the whole daemon to recommending, such as an open breaker, to why. `checks` look at one
    change, `room` and `room_to_return` at what may still be sent at all.
    """

    runtime_folder: Path
    modes: Modes
    patience: RoundDeadline
    held_to: Mapping[str, str] = field(default_factory=dict)
    checks: Sequence[ChangeCheck] = ()
    room: AnyCheck = lambda: None
    room_to_return: AnyCheck = lambda: None

    def against_change(self, change: Recommendation, job: Job) -> str | None:
        """Return why a change must not be applied now; None if it can be."""
        mode = self.modes.of(job)
        if mode is not Mode.APPLY:
            return f"mode: {mode} for this job"
        for name, text in self.held_to.items():
            return f"{name}: {text}"
        stopped = self._stopped()
        if stopped is not None:
            return stopped
        try:
            found = next((said for said in (check(change, job) for check in self.checks) if said is not None), None)
        except AdvisorError as err:
            # What could not be asked is not known to be allowed.
            return f"unknown: {err}"
        return found or self.room()

    def against_return(self, lease: Lease) -> str | None:  # noqa: ARG002  (the protocol's)
        """Return why a change must not be reverted now; None if it can be."""
        return self._stopped() or self.room_to_return()

    def _stopped(self) -> str | None:
        pause = paused(self.runtime_folder)
        return self.patience.exhausted() or (None if pause is None else f"paused: {pause.text}")
