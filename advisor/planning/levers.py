"""Finds the levers that a site supports, and what is missing for the others."""

from collections.abc import Callable, Mapping
from typing import Final

from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.domain.releases import first_with
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import TopologyKind
from advisor.domain.units import MINUTE_S


def missing_for_nice(snapshot: Snapshot) -> str | None:
    """Return what is missing for nice, which moves jobs only where priorities are computed from factors."""
    if snapshot.config.priority_type != "priority/multifactor":
        return f"PriorityType is {snapshot.config.priority_type or 'unknown'}, not priority/multifactor"
    return None


def missing_for_switches(snapshot: Snapshot) -> str | None:
    """Return what is missing to wait for switches: only topology/tree does, for up to max_switch_wait."""
    if snapshot.topology.kind is not TopologyKind.TREE:
        return f"the topology is {snapshot.topology.kind}; only topology/tree waits for switches"
    if len(snapshot.topology.leaves) < 2:
        return "the topology has fewer than two leaf switches"
    if snapshot.config.max_switch_wait_s < MINUTE_S:
        return "SchedulerParameters=max_switch_wait is below 60 s"
    return _stands_down(snapshot)


def missing_for_node_range(snapshot: Snapshot) -> str | None:
    """Return what is missing to narrow node ranges: nothing, unless Slurm delays placements itself."""
    return _stands_down(snapshot)


def missing_for_time_min(snapshot: Snapshot) -> str | None:
    """Return what is missing for TimeMin as a soft limit, with which the time limit stays."""
    config = snapshot.config
    if not config.traits.soft_limits:
        first = first_with(lambda traits: traits.soft_limits)
        return f"Slurm {config.slurm_version or 'of an unknown release'} knows no soft limits; {first} and later do"
    if not config.takes_soft_limits:
        return "time_min_as_soft_limit is not in SchedulerParameters, so that TimeMin would shorten jobs"
    if config.scheduler_type != "sched/backfill":
        return f"SchedulerType is {config.scheduler_type or 'unknown'}, not sched/backfill"
    return None


def missing_for_most(snapshot: Snapshot) -> str | None:
    """Return what is missing for most levers, which need only a readable configuration."""
    return None if snapshot.config.scheduler_type else "the configuration could not be read"


def _stands_down(snapshot: Snapshot) -> str | None:
    if "bf_topopt_enable" in snapshot.config.scheduler_parameters:
        return "SchedulerParameters=bf_topopt_enable already delays jobs for a better place"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The check for what a lever lacks at a site, None where it can be used, and the cost of lacking it."""

    missing: Callable[[Snapshot], str | None] = missing_for_most
    cost: str = "no such change is proposed"


# Levers with needs of their own, or with a cost of their own.
NEEDS: Final[Mapping[Lever, Need]] = {
    Lever.SWITCHES: Need(missing=missing_for_switches, cost="gangs are not held for one leaf switch"),
    Lever.NODE_RANGE: Need(missing=missing_for_node_range, cost="gangs are not held for few nodes"),
    Lever.NICE: Need(missing=missing_for_nice, cost="no reordering"),
    Lever.GPU_COUNT: Need(cost="no resizing"),
    Lever.TIME_MIN: Need(
        missing=missing_for_time_min,
        cost="jobs forecast to end long before their limits wait for holes that fit their limits",
    ),
    # Where Slurm delays placements itself, no nodes are named either.
    Lever.NODE_LIST: Need(
        missing=missing_for_node_range,
        cost="a policy chooses no nodes for gangs: they are held for few nodes or one leaf switch alone, and Slurm "
        "chooses among these",
    ),
}


def need_of(lever: Lever) -> Need:
    """Return the need of a lever."""
    return NEEDS.get(lever, Need())


def missing_for(lever: Lever, snapshot: Snapshot) -> str | None:
    """Return what is missing for a lever, None where it can be used."""
    if lever in snapshot.hidden_levers:
        return f"the {snapshot.source} reader does not show what jobs hold there; use --source text"
    return need_of(lever).missing(snapshot)


def missing_by_lever(snapshot: Snapshot) -> Mapping[Lever, str]:
    """Map each lever that cannot be used to what is missing."""
    return {lever: text for lever in Lever if (text := missing_for(lever, snapshot)) is not None}
