"""What became of a job: when it started and ended, what was changed about it, and what had been forecast."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from advisor.domain.actions import Lever, Reason
from advisor.domain.forecast import Interval
from advisor.domain.lease import Ending

# An end is known to within the time between two snapshots; beyond this it is not known at all.
LONGEST_GAP_S: Final = 1800.0
# Below this run time the slowdown of a job says more about the job than about its wait.
SLOWDOWN_BOUND_S: Final = 600.0


class Arm(StrEnum):
    """On which side of an experiment a job is; NONE where there is no experiment or the job is no part of it."""

    NONE = ""
    TREATED = "treated"
    CONTROL = "control"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenForecast:
    """What models believed of a job at `made_time`: when it starts, in POSIX seconds, and how long it runs."""

    made_time: float
    start_time: Interval | None = None
    run_time_s: Interval | None = None
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenChange:
    """One change that took effect on a job: what was promised of it, and how it ended.

    The saving is over all jobs that the change helps; None where only the journal knew of the change afterwards.
    `added_delay_s` is the most that the job itself may start later. `overruled_time` is when it was seen that somebody
    else had changed the field. `ending` None: it is still out, or a later change to the field took its place.
    """

    lever: Lever
    applied_time: float
    reason: Reason | None = None
    saved_s_low: float | None = None
    saved_s_high: float | None = None
    added_delay_s: float = 0.0
    overruled_time: float | None = None
    ending: Ending | None = None
    ended_time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """One GPU job from the first sight of it to the last.

    `submit_time`, `eligible_time` and `start_time` are those of the first start; `last_start_time` that of the latest,
    if the job was requeued. `end_time` is when it was seen to be gone, `last_seen_time` when it was last seen, set
    together with it: it ended between the two. `partition` holds several names, with commas, if the job asks for
    several. `experiment` is the digest of the experiment whose arm the job is in. `first_forecast` was made when the
    job was first seen, `changed_forecast` right before its first change. `gpus` 0: the request does not tell how many.
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

    @property
    def end_is_known(self) -> bool:
        """Whether it is known, to within the time between two snapshots, when the job ended."""
        if self.end_time is None or self.last_seen_time is None:
            return False
        return 0.0 <= self.end_time - self.last_seen_time <= LONGEST_GAP_S

    @property
    def queueing_delay_s(self) -> float | None:
        """How long the job was eligible before its first start; None where it was not seen to start."""
        if self.start_time is None:
            return None
        since = self.submit_time if self.eligible_time is None else self.eligible_time
        return max(0.0, self.start_time - since)

    @property
    def run_time_s(self) -> float | None:
        """How long the last run took; None where its start or its end is not known."""
        if self.end_time is None or self.last_start_time is None or not self.end_is_known:
            return None
        return max(0.0, self.end_time - self.last_start_time)

    @property
    def jct_s(self) -> float | None:
        """The time from submission to the end; None where the job did not run or its end is not known."""
        if self.run_time_s is None or self.end_time is None:
            return None
        return max(0.0, self.end_time - self.submit_time)

    @property
    def bounded_slowdown(self) -> float | None:
        """JCT over run time, the last one, which counts as `SLOWDOWN_BOUND_S` at least."""
        if self.jct_s is None or self.run_time_s is None:
            return None
        return max(1.0, self.jct_s / max(self.run_time_s, SLOWDOWN_BOUND_S))
