"""The knobs of the planner; each carries the sentence that documents it."""

from dataclasses import dataclass
from typing import Annotated

from advisor.units import HOUR_S

LARGEST = 1e9
LARGEST_INFLATION = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningSettings:
    """What the rule-based planner assumes and where it stops."""

    depth: Annotated[int, "how many pending jobs of a pool are planned for, best priority first"] = 200
    ageing_s: Annotated[float, "a job that has waited this long weighs twice as much as a new one"] = 12 * HOUR_S
    min_saving_s: Annotated[float, "total job completion time a change must save to be worth proposing"] = 600.0
    used_limit_ratio_low: Annotated[float, "share of the time limit jobs are assumed to use, at least"] = 0.2
    soft_limit_ratio_high: Annotated[float, "largest share of the limit that is worth a soft limit"] = 0.75
    node_timer_s: Annotated[float, "mean wait for the fewest nodes, assumed where none was seen"] = 600.0
    leaf_timer_s: Annotated[float, "mean wait for one leaf switch, assumed where none was seen"] = 1800.0
    timer_memory_s: Annotated[float, "the time in which a wait that was seen comes to count half"] = 3600.0
    timer_imagined: Annotated[float, "how many waits the assumed ones count for"] = 2.0
    insensitive_inflation: Annotated[float, "a gang that a worse place slows by less does not wait"] = 1.05
    preempt: Annotated[bool, "whether jobs that declare a checkpoint may be stopped for gangs"] = False
    restart_s: Annotated[float, "assumed time that a stopped job needs, once it starts again, to go on"] = 60.0
    leaf_inflation: Annotated[float, "assumed inflation of a gang spread over nodes of one leaf"] = 1.1
    spine_inflation: Annotated[float, "assumed inflation of a gang spread over leaves"] = 1.3
    scaling_exponent: Annotated[float, "assumed speed of n GPUs is n to this power"] = 0.9
    min_marginal_ratio: Annotated[float, "least speed an added GPU must bring, as a share of one GPU's"] = 0.5

    def __post_init__(self) -> None:
        for name in ("depth", "ageing_s", "node_timer_s", "leaf_timer_s", "timer_memory_s", "timer_imagined"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")
            if not 1 <= getattr(self, name) <= LARGEST:
                raise ValueError(f"{name} must be at least 1 and at most {LARGEST:.0f}")
        for name in ("used_limit_ratio_low", "soft_limit_ratio_high", "scaling_exponent", "min_marginal_ratio"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be above 0 and at most 1")
        if not 1 <= self.leaf_inflation <= self.spine_inflation:
            raise ValueError("leaf_inflation must be at least 1 and at most spine_inflation")
        for name in ("spine_inflation", "insensitive_inflation"):
            if not 1 <= getattr(self, name) <= LARGEST_INFLATION:
                raise ValueError(f"{name} must be at least 1 and at most {LARGEST_INFLATION:.0f}")
        if min(self.min_saving_s, self.restart_s) < 0 or max(self.min_saving_s, self.restart_s) > LARGEST:
            raise ValueError(f"min_saving_s and restart_s must not be negative, and at most {LARGEST:.0f}")
