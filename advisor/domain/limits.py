"""The bounds the guard keeps; each carries the sentence that documents it."""

from dataclasses import dataclass
from typing import Annotated, Final

from advisor.units import HOUR_S

# A job that is stopped for a gang has run for so long since it started, and is not stopped again for so long.
QUANTUM_S: Final = 1200.0
APART_S: Final = HOUR_S

_NOT_NEGATIVE: Final = (
    "min_job_age_s",
    "max_job_wait_s",
    "max_added_delay_s",
    "cooldown_s",
    "max_changes",
    "max_changes_per_user",
    "max_changes_per_account",
    "max_user_delay_s",
    "max_account_delay_s",
    "fairness_window_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far advice may go."""

    min_job_age_s: Annotated[float, "jobs submitted less than this ago are left alone"] = 60.0
    max_job_wait_s: Annotated[float, "jobs eligible for longer than this are never delayed"] = 48 * HOUR_S
    max_added_delay_s: Annotated[float, "most that advice may delay any one job"] = 6 * HOUR_S
    nice_min: Annotated[int, "lowest nice advice may set; below 0 needs an Operator"] = 0
    nice_max: Annotated[int, "highest nice advice may set"] = 10_000
    cooldown_s: Annotated[float, "a job is left alone for so long after it was changed, or its change refused"] = 600.0
    max_changes: Annotated[int, "most changes in one cycle"] = 30
    max_changes_per_user: Annotated[int, "most changes in one cycle to jobs of one user"] = 5
    max_changes_per_account: Annotated[int, "most changes in one cycle to jobs of one account"] = 10
    max_user_delay_s: Annotated[float, "most that advice may delay all jobs of a user together within the window"] = (
        24 * HOUR_S
    )
    max_account_delay_s: Annotated[
        float, "most that advice may delay all jobs of an account together within the window"
    ] = 96 * HOUR_S
    fairness_window_s: Annotated[float, "time over which the delays of a user and of an account are added up"] = (
        24 * HOUR_S
    )
    preempt_partitions: Annotated[
        str, "partitions, separated by commas, in which jobs that declare a checkpoint may be stopped for a gang"
    ] = ""

    def __post_init__(self) -> None:
        for name in _NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        if self.nice_min > self.nice_max:
            raise ValueError("nice_min must not be above nice_max")

    @property
    def partitions_to_preempt_in(self) -> frozenset[str]:
        """The partitions in which running jobs may be stopped; none by default."""
        return frozenset(name.strip() for name in self.preempt_partitions.split(",") if name.strip())
