"""Defines the outcome of a job: its start and end, the changes to it, and its forecasts."""

from enum import StrEnum
from typing import Final

from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Interval
from advisor.domain.lease import Ending

# An end is known to within the time between two snapshots; with a longer time it counts as unknown.
LONGEST_GAP_S: Final = 1800.0
# Below this run time the slowdown of a job depends more on the job than on its wait.
SLOWDOWN_BOUND_S: Final = 600.0


class Arm(StrEnum):
    """The side of an experiment that a job is on; NONE without an experiment or outside of it."""

    NONE = ""
    TREATED = "treated"
    CONTROL = "control"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenForecast:
    """The forecast of a job made at `made_time`: its start in POSIX seconds, and its run time, with the mean."""

    made_time: float
    start_time: Interval | None = None
    run_time_s: Interval | None = None
    run_mean_s: float | None = None
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenChange:
    """One change that took effect on a job: the code of its reason, its promises, and how it ended.

    The reason can be one that an earlier version had. The saving is over all jobs that the change helps; None if the
    change is only known from the journal. `added_delay_s` is the longest delay of the job itself. `overruled_time` is
    when somebody else's change to the field was observed. `ending` None means that it is outstanding, or was replaced
    by a later change to the field.
    """

    lever: Lever
    applied_time: float
    reason: str | None = None
    saved_s_low: float | None = None
    saved_s_high: float | None = None
    added_delay_s: float = 0.0
    overruled_time: float | None = None
    ending: Ending | None = None
    ended_time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """One GPU job from the first snapshot that shows it to the last.

    `submit_time`, `eligible_time` and `start_time` are those of the first start; `last_start_time` that of the latest,
    if the job was requeued. It ended between `last_seen_time` and `end_time`, the times of the last snapshot with it
    and the first without; both are set together. `partition` holds several names, with commas, if the job asks for
    several. `experiment` is the digest of the experiment whose arm the job is in. `first_forecast` was made when the
    job was first seen, `changed_forecast` right before its first change. `gpus` are those that it keeps from others, as
    plans count them, rounded up, 0 if the request does not tell, and `nodes` those of its latest run; earlier versions
    wrote none. `wants_mail` is whether its user asks for a mail about its changes.
    """

    job_id: int
    submit_time: float
    user: str = ""
    account: str = ""
    partition: str = ""
    gpus: int = 0
    time_limit_s: float | None = None
    eligible_time: float | None = None
    start_time: float | None = None
    last_start_time: float | None = None
    requeues: int = 0
    end_time: float | None = None
    last_seen_time: float | None = None
    arm: Arm = Arm.NONE
    experiment: str = ""
    changes: tuple[SeenChange, ...] = ()
    first_forecast: SeenForecast | None = None
    changed_forecast: SeenForecast | None = None
    wants_mail: bool = False
    nodes: tuple[str, ...] = ()

    @property
    def end_is_known(self) -> bool:
        """Whether the end of the job is known to within the time between two snapshots."""
        if self.end_time is None or self.last_seen_time is None:
            return False
        return 0.0 <= self.end_time - self.last_seen_time <= LONGEST_GAP_S

    @property
    def waits_since(self) -> float:
        """The instant at which the job became eligible; that of its submission where it is not known."""
        return self.submit_time if self.eligible_time is None else self.eligible_time

    @property
    def queueing_delay_s(self) -> float | None:
        """How long the job was eligible before its first start; None if the start was not observed."""
        if self.start_time is None:
            return None
        return max(0.0, self.start_time - self.waits_since)

    @property
    def run_time_s(self) -> float | None:
        """The duration of the last run; None if its start or its end is unknown."""
        if self.end_time is None or self.last_start_time is None or not self.end_is_known:
            return None
        return max(0.0, self.end_time - self.last_start_time)

    @property
    def jct_s(self) -> float | None:
        """The time from submission to the end; None if the job did not run or its end is unknown."""
        if self.run_time_s is None or self.end_time is None:
            return None
        return max(0.0, self.end_time - self.submit_time)

    @property
    def bounded_slowdown(self) -> float | None:
        """JCT over the last run time, which counts as at least `SLOWDOWN_BOUND_S`."""
        if self.jct_s is None or self.run_time_s is None:
            return None
        return max(1.0, self.jct_s / max(self.run_time_s, SLOWDOWN_BOUND_S))
