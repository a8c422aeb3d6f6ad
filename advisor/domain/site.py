"""Defines the part of a site's Slurm configuration that determines which changes are possible, and what it bills."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import field

from advisor.domain.dataclass import dataclass
from advisor.domain.releases import Traits, traits_of
from advisor.domain.units import MINUTE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition; `max_time_s` None means unlimited, `nodes` stand in name order.

    Not every reader shows `qos`. `over_subscribe` is as scontrol spells it. `max_cpus_per_node` bounds what all of its
    jobs together hold on a node.
    """

    name: str
    is_up: bool = True
    nodes: tuple[str, ...] = ()
    max_time_s: float | None = None
    default_time_s: float | None = None
    priority_tier: int = 1
    min_nodes_per_job: int = 1
    max_nodes_per_job: int | None = None
    priority_job_factor: int = 1
    is_default: bool = False
    qos: str = ""
    over_subscribe: str = "NO"
    max_cpus_per_node: int | None = None

    @property
    def gives_whole_nodes(self) -> bool:
        """Whether every job of the partition gets whole nodes, whatever it asks for."""
        return self.over_subscribe == "EXCLUSIVE"


def longest_limit_s(names: Iterable[str], partitions: Mapping[str, Partition]) -> float:
    """Return the longest time limit that all partitions of a job admit; 0 if one is not known, or none is named."""
    known = [partitions.get(name) for name in names]
    return min(
        (0.0 if each is None else math.inf if each.max_time_s is None else each.max_time_s for each in known),
        default=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteConfig:
    """The values of `scontrol show config` that the planner needs.

    `scheduler_parameters` maps each word of SchedulerParameters to its value, "" for a bare word.
    An empty `slurm_version` or `priority_type` means unknown. `tres_weights` are those of PriorityWeightTRES.
    `further_settings` are the settings other than Slurm's defaults that decide when jobs start and that no other field
    holds, by their names in slurm.conf.
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
    priority_flags: tuple[str, ...] = ()
    priority_favor_small: bool = False
    priority_decay_half_life_s: float | None = None
    tres_weights: Mapping[str, float] = field(default_factory=dict)
    further_settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def traits(self) -> Traits:
        """Return the traits of the site's release of Slurm."""
        return traits_of(self.slurm_version)

    @property
    def hides_jobs(self) -> bool:
        """Return whether users do not see each other's jobs; True as well where the configuration is not known."""
        return not self.scheduler_type or any(word in {"job", "jobs", "all"} for word in self.private_data)

    @property
    def hides_powered_down(self) -> bool:
        """Return whether cloud nodes that are powered down, and that Slurm boots for a job, are not shown."""
        suspends = "SuspendTime" in self.further_settings
        return suspends and "cloud" not in self.private_data and not self.traits.shows_powered_down

    @property
    def takes_soft_limits(self) -> bool:
        """Return whether backfill uses TimeMin as a soft limit; otherwise TimeMin shortens jobs."""
        return self.traits.soft_limits and "time_min_as_soft_limit" in self.scheduler_parameters

    @property
    def backfill_resolution_s(self) -> float:
        """The step in which backfill counts time; its default is 60 s."""
        return self._parameter("bf_resolution", 60.0)

    @property
    def backfill_depth(self) -> int:
        """The number of jobs that backfill considers; its default is 500."""
        return int(self._parameter("bf_max_job_test", 500.0))

    @property
    def backfill_window_s(self) -> float:
        """The time ahead in which backfill reserves resources; its default is a day."""
        return self._parameter("bf_window", 1440.0) * MINUTE_S

    @property
    def reserves_from_priority(self) -> int:
        """The priority from which jobs hold nodes in backfill; 0, its default, for all."""
        return int(self._parameter("bf_min_prio_reserve", 0.0))

    @property
    def reserves_after_s(self) -> float:
        """The age from which jobs hold nodes in backfill; 0, its default, for all."""
        return self._parameter("bf_min_age_reserve", 0.0)

    @property
    def reserves_first(self) -> int:
        """For how many jobs of a partition, the first, backfill holds nodes; 0, its default, for all."""
        return int(self._parameter("bf_job_part_count_reserve", 0.0))

    @property
    def max_switch_wait_s(self) -> float:
        """The longest wait for switches that Slurm grants; its default is 300 s."""
        return self._parameter("max_switch_wait", 300.0)

    def _parameter(self, word: str, default: float) -> float:
        """Return a whole number of SchedulerParameters, the default where there is none."""
        value = self.scheduler_parameters.get(word, "")
        return float(value) if value.isdecimal() and len(value) <= 9 else default


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    """The weights of a partition's TRESBillingWeights as slurm.conf has them, "" for none.

    `gpu_tres` are the GPUs among them whose weight is above 0, in small letters: `gres/gpu`, `gres/gpu:a100`.
    """

    partition: str
    weights: str = ""
    gpu_tres: tuple[str, ...] = ()
