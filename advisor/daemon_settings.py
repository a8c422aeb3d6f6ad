"""When the daemon works, and where it keeps what others look at."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from advisor.pacing import PacingSettings

Level = Literal["debug", "info", "warning", "error"]
Layout = Literal["auto", "logfmt", "json"]

# The unit's WatchdogSec has to be longer than the longest round.
LONGEST_DEADLINE_S = 80.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """How `sadvise serve` runs."""

    interval_s: Annotated[float, "time from the start of one round to the next"] = 60.0
    interval_max_s: Annotated[float, "longest interval, which it reaches when slurmctld is under strain"] = 600.0
    jitter_s: Annotated[float, "most that a round starts late by chance, so that clusters do not ask in step"] = 5.0
    deadline_s: Annotated[float, "how long one round may talk to Slurm; then what is left waits for the next"] = 45.0
    runtime_folder: Annotated[str, "folder of the pause file and of the lock that keeps a second daemon off"] = (
        "/run/sadvise"
    )
    refit: Annotated[bool, "whether run times are fitted anew every night; needs the extra `fit`"] = False
    night_hour: Annotated[int, "hour of the day, UTC, of that fit and of pruning the journal"] = 3
    strain_threads: Annotated[int, "slurmctld threads from which on it counts as strained"] = 64
    strain_queue: Annotated[int, "agent queue of slurmctld from which on it counts as strained"] = 200
    strain_cycle_s: Annotated[float, "pass of slurmctld's main scheduler from which on it counts as strained"] = 5.0
    log_level: Annotated[Level, "least severe events that are logged: debug, info, warning or error"] = "info"
    log_format: Annotated[Layout, "auto, logfmt or json"] = "auto"

    def __post_init__(self) -> None:
        if not 1.0 <= self.interval_s <= self.interval_max_s <= 86_400.0:
            raise ValueError("interval_s must be at least 1 and at most interval_max_s, which is at most 86400")
        if not 0.0 <= self.jitter_s <= self.interval_s:
            raise ValueError("jitter_s must not be negative, nor above interval_s")
        if not 0.0 < self.deadline_s <= LONGEST_DEADLINE_S:
            raise ValueError(f"deadline_s must be above 0 and at most {LONGEST_DEADLINE_S:g}")
        if not 0 <= self.night_hour <= 23:
            raise ValueError("night_hour must be an hour from 0 to 23")
        if min(self.strain_threads, self.strain_queue, self.strain_cycle_s) <= 0:
            raise ValueError("strain_threads, strain_queue and strain_cycle_s must be above 0")
        if not Path(self.runtime_folder).is_absolute():
            raise ValueError("runtime_folder must be an absolute path")

    @property
    def pacing(self) -> PacingSettings:
        """From where to where the interval goes, and what makes it longer."""
        return PacingSettings(
            interval_s=self.interval_s,
            interval_max_s=self.interval_max_s,
            strain_threads=self.strain_threads,
            strain_queue=self.strain_queue,
            strain_cycle_s=self.strain_cycle_s,
        )
