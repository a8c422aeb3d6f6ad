"""How often slurmctld may be asked: less often while it is under strain or does not answer, and in which numbers."""

from dataclasses import dataclass
from typing import Annotated, Final

from advisor.domain.load import ControllerLoad

# What one round asks before anything is changed: sdiag, and the four of a snapshot.
ROUND_REQUESTS: Final = 5
# What a change costs: the job is read, changed, and read back.
CHANGE_REQUESTS: Final = 5

_WIDER: Final = 2.0
# After strain ends it takes three rounds to come back from one doubling.
_NARROWER: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings:
    """How many requests slurmctld may get, reads and writes together.

    The defaults stay within Slurm's own rate limiter at its defaults, which holds 30 requests and adds 2 every second.
    """

    rpcs_per_minute: Annotated[float, "requests to slurmctld that are earned every minute, reads and changes"] = 60.0
    burst: Annotated[int, "most requests that may be saved up; those of one round come close together"] = 30
    writes_per_minute: Annotated[int, "changes that may be sent to slurmctld in a minute"] = 12
    kept_for_reads: Annotated[int, "requests that changes leave for the next reading of the cluster"] = ROUND_REQUESTS

    def __post_init__(self) -> None:
        if self.rpcs_per_minute <= 0 or self.writes_per_minute < 0 or self.kept_for_reads < 0:
            raise ValueError("rpcs_per_minute must be above 0, writes_per_minute and kept_for_reads must be at least 0")
        least = ROUND_REQUESTS + CHANGE_REQUESTS + self.kept_for_reads
        if self.burst < least:
            raise ValueError(f"burst must be at least {least}: a round, one change and kept_for_reads")


@dataclass(frozen=True, slots=True, kw_only=True)
class PacingSettings:
    """From where to where the interval between rounds goes, and what makes it longer."""

    interval_s: float = 60.0
    interval_max_s: float = 600.0
    strain_threads: int = 64
    strain_queue: int = 200
    strain_cycle_s: float = 5.0

    def __post_init__(self) -> None:
        if not 0.0 < self.interval_s <= self.interval_max_s:
            raise ValueError("interval_s must be above 0 and at most interval_max_s")
        if min(self.strain_threads, self.strain_queue, self.strain_cycle_s) <= 0:
            raise ValueError("strain_threads, strain_queue and strain_cycle_s must be above 0")


def strained(load: ControllerLoad, settings: PacingSettings) -> str:
    """Say in plain words what shows that slurmctld is under strain; "" where nothing does.

    The time of a backfill pass does not count: it is mostly spent asleep between locks.
    """
    found: list[str] = []
    if load.server_threads is not None and load.server_threads >= settings.strain_threads:
        found.append(f"{load.server_threads} server threads (strained from {settings.strain_threads})")
    if load.agent_queue is not None and load.agent_queue >= settings.strain_queue:
        found.append(f"{load.agent_queue} messages in the agent queue (strained from {settings.strain_queue})")
    if load.cycle_s is not None and load.cycle_s >= settings.strain_cycle_s:
        found.append(f"a scheduling pass of {load.cycle_s:.1f} s (strained from {settings.strain_cycle_s:g} s)")
    return " and ".join(found)


def next_interval_s(current_s: float, settings: PacingSettings, *, trouble: bool) -> float:
    """Return the interval until the next round: twice as long after trouble, else a fifth shorter, within its bounds.

    Trouble is strain, or a slurmctld that did not answer.
    """
    wanted_s = current_s * (_WIDER if trouble else _NARROWER)
    return min(max(wanted_s, settings.interval_s), settings.interval_max_s)
