"""The part of a site's Slurm configuration that decides which advice is possible."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition; `max_time_s` None means unlimited, `nodes` stand in name order."""

    name: str
    is_up: bool = True
    nodes: tuple[str, ...] = ()
    max_time_s: float | None = None
    default_time_s: float | None = None
    priority_tier: int = 1
    max_nodes_per_job: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteConfig:
    """What `scontrol show config` says and the planner needs.

    `scheduler_parameters` maps each word of SchedulerParameters to its value, "" for a bare word.
    An empty `slurm_version` or `priority_type` means unknown.
    """

    cluster: str = ""
    slurm_version: str = ""
    scheduler_type: str = ""
    scheduler_parameters: Mapping[str, str] = field(default_factory=dict)
    select_parameters: tuple[str, ...] = ()
    topology_plugin: str = ""
    priority_type: str = ""
    priority_weights: Mapping[str, int] = field(default_factory=dict)
    priority_max_age_s: float | None = None
    priority_calc_period_s: float | None = None
    site_factor_plugin: str = ""
    private_data: tuple[str, ...] = ()
    accounting_enforce: tuple[str, ...] = ()
    accounting_tres: tuple[str, ...] = ()
    preempt_type: str = ""

    @property
    def release(self) -> tuple[int, int]:
        """The release as (year, month), (0, 0) where unknown; point releases do not count."""
        numbers = self.slurm_version.split(".")[:2]
        if len(numbers) == 2 and all(number.isdecimal() and len(number) <= 4 for number in numbers):
            return int(numbers[0]), int(numbers[1])
        return 0, 0

    @property
    def takes_soft_limits(self) -> bool:
        """Whether backfill takes TimeMin for a soft limit; else TimeMin really shortens jobs. Known from 23.11 on."""
        return self.release >= (23, 11) and "time_min_as_soft_limit" in self.scheduler_parameters

    @property
    def soft_limits_outlast_start(self) -> bool:
        """Whether jobs behind a job that runs are planned with its soft limit; before 25.05.4 with its time limit."""
        point = self.slurm_version.split(".")[2:3]
        number = point[0].partition("-")[0] if point else ""
        return self.release > (25, 5) or (self.release == (25, 5) and number.isdecimal() and int(number[:4]) >= 4)

    @property
    def backfill_resolution_s(self) -> float:
        """The step in which backfill counts time; its default is 60 s."""
        value = self.scheduler_parameters.get("bf_resolution", "")
        return float(value) if value.isdecimal() and len(value) <= 9 else 60.0

    @property
    def max_switch_wait_s(self) -> float:
        """The longest wait for switches that Slurm grants; its default is 300 s."""
        value = self.scheduler_parameters.get("max_switch_wait", "")
        return float(value) if value.isdecimal() and len(value) <= 9 else 300.0
