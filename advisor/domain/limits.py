"""The bounds the guard keeps; each carries the sentence that documents it."""

from dataclasses import dataclass
from typing import Annotated

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far advice may go."""

    min_job_age_s: Annotated[float, "jobs submitted less than this ago are left alone"] = 60.0
    max_job_wait_s: Annotated[float, "jobs eligible for longer than this are never delayed"] = 48 * HOUR_S
    max_added_delay_s: Annotated[float, "most that advice may delay any one job"] = 6 * HOUR_S
    nice_min: Annotated[int, "lowest nice advice may set; below 0 needs an Operator"] = 0
    nice_max: Annotated[int, "highest nice advice may set"] = 10_000
    max_changes: Annotated[int, "most changes proposed in one cycle"] = 30

    def __post_init__(self) -> None:
        for name in ("min_job_age_s", "max_job_wait_s", "max_added_delay_s", "max_changes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        if self.nice_min > self.nice_max:
            raise ValueError("nice_min must not be above nice_max")
