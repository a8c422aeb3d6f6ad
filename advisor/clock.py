"""The only reader of the system clock; the core takes *now* from the snapshot instead."""

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Tells the present instant in POSIX seconds."""

    def now(self) -> float:
        """Return the present instant in POSIX seconds."""


class SystemClock:
    """The clock of the machine."""

    def now(self) -> float:
        """Return the machine's time in POSIX seconds."""
        return time.time()


@dataclass(slots=True)
class ManualClock:
    """A clock that stands still until it is advanced; for tests and simulation."""

    time_s: float = 0.0

    def now(self) -> float:
        """Return the time it was last set to."""
        return self.time_s

    def advance(self, duration_s: float) -> None:
        """Move the clock forward by `duration_s`."""
        self.time_s += duration_s
