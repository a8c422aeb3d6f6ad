"""Turns a snapshot of a site into a cluster of the simulator: nodes leaf by leaf, partitions, parameters and limits."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from advisor.backends.spelling import duration_s
from advisor.domain.dataclass import dataclass
from advisor.domain.node import Node
from advisor.domain.releases import release_of
from advisor.domain.site import Partition, SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import MINUTE_S
from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster, NodeGroup, NodeState, SlurmParameters
from advisor.sim.slurm.queue_tables import PartitionTable, QosTable
from advisor.sim.slurm.site_limits import LimitTables, limit_tables
from advisor.sim.slurm.slurm_settings import (
    MODELLED_TRES,
    PriorityFlag,
    preempt_mode_of,
    preempt_type_of,
    unknown_settings,
)

if TYPE_CHECKING:
    from advisor.backends.assoc_text import PreemptRule, QueueLimits

# The words of AccountingStorageEnforce that the model knows.
_ENFORCED: Final = frozenset({"associations", "limits", "nojobs", "nosteps", "qos", "safe"})
_NUMBER: Final = re.compile(r"(\d+)")
_MOST_GPUS: Final = 64
_HIGHEST_TIER: Final = 65_533
_FILE_LACKS_LIMITS: Final = "a snapshot has no QOS, limits or shares: only --cluster live reads them"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCluster:
    """The cluster of a site, and plain sentences on what is not in it."""

    cluster: Cluster
    notes: tuple[str, ...] = ()


def site_cluster(snapshot: Snapshot, limits: "QueueLimits | None" = None) -> SiteCluster:
    """Return the cluster of a snapshot; `limits` are those of its QOS and associations, None if they were not read.

    Raises `SimulationError` if no node has GPUs, or if a value is beyond what a cluster can have.
    """
    if not any(_gpus(node) for node in snapshot.nodes):
        raise SimulationError("the snapshot has no nodes with GPUs: there is nothing to simulate")
    notes = [_FILE_LACKS_LIMITS] if limits is None else list(limits.notes)
    tables = LimitTables()
    if limits is not None:
        enforced = bool({"limits", "safe"} & set(snapshot.config.accounting_enforce))
        tables = limit_tables(limits.state, are_enforced=enforced) if limits.state.associations else tables
        notes += tables.notes
    nodes = nodes_by_leaf(snapshot)
    shown, rules = ({}, {}) if limits is None else (limits.partitions, limits.preempting)
    partitions = [shown.get(each.name, each) for each in snapshot.partitions]
    by_qos = snapshot.config.preempt_type == "preempt/qos"
    if by_qos and limits is None:
        notes.append("a snapshot does not show which QOS preempt which, so none does: --cluster live reads it")
    try:
        cluster = Cluster(
            nodes=tuple(groups_of(nodes)),
            slurm=parameters_of(snapshot.config),
            partitions=tuple(partition_tables(partitions, nodes, tables.qos, notes, {} if by_qos else rules)),
            qos=tuple(_preempting(table, rules, tables.qos) for table in tables.qos) if by_qos else tables.qos,
            associations=tables.associations,
        )
    except ValidationError as err:
        error = err.errors(include_url=False)[0]
        where = ".".join(str(step) for step in error["loc"])
        raise SimulationError(f"the snapshot cannot be simulated: {where}: {error['msg']}") from err
    notes += _notes_on_nodes(snapshot)
    unknown = unknown_settings(snapshot.config, snapshot.topology.kind, partitions, snapshot.nodes)
    return SiteCluster(cluster=cluster, notes=(*notes, *map(str, unknown)))


def nodes_by_leaf(snapshot: Snapshot) -> list[tuple[Node, str]]:
    """Return the nodes with the names of their leaf switches, leaf by leaf and by name.

    Nodes that no leaf holds stand together behind the others, below a leaf without a name.
    """
    leaves = sorted(snapshot.topology.leaves, key=lambda switch: _natural(switch.name))
    place_by_node = {name: place for place, switch in enumerate(leaves) for name in switch.nodes}
    places = [(place_by_node.get(node.name, len(leaves)), node) for node in snapshot.nodes]
    places.sort(key=lambda entry: (entry[0], _natural(entry[1].name)))
    return [(node, leaves[place].name if place < len(leaves) else "") for place, node in places]


def groups_of(nodes: Sequence[tuple[Node, str]]) -> Iterator[NodeGroup]:
    """Return nodes as groups of equal neighbours, which keep their order."""
    begin = 0
    for end in range(1, len(nodes) + 1):
        # The names of a group are sorted as text.
        is_last = end == len(nodes) or nodes[end][0].name < nodes[end - 1][0].name
        if is_last or _kind(*nodes[end]) != _kind(*nodes[begin]):
            names = ",".join(node.name for node, _ in nodes[begin:end])
            yield NodeGroup(count=end - begin, names=names, **_kind(*nodes[begin]))
            begin = end


def parameters_of(config: SiteConfig) -> SlurmParameters:
    """Return the parameters of slurmctld that a configuration states, with Slurm's defaults for the others."""
    words, further = config.scheduler_parameters, config.further_settings
    weights = config.priority_weights
    plain = SlurmParameters()

    def number(word: str, default: float, least: float = 0.0, settings: Mapping[str, str] = words) -> float:
        value = settings.get(word, "")
        return max(least, float(value)) if value.isdecimal() and len(value) <= 9 else default

    known = {str(flag) for flag in PriorityFlag}
    enforced: Any = tuple(word for word in config.accounting_enforce if word in _ENFORCED)
    tres_weights: Any = {name: value for name, value in config.tres_weights.items() if name in MODELLED_TRES}
    return SlurmParameters(
        release=release_of(config.slurm_version) or plain.release,
        default_queue_depth=int(number("default_queue_depth", plain.default_queue_depth, 1.0)),
        batch_sched_delay_s=number("batch_sched_delay", plain.batch_sched_delay_s),
        sched_interval_s=number("sched_interval", plain.sched_interval_s, 1.0),
        bf_interval_s=number("bf_interval", plain.bf_interval_s, 1.0),
        bf_max_job_test=max(1, config.backfill_depth),
        partition_job_depth=int(number("partition_job_depth", 0)),
        bf_max_job_user=int(number("bf_max_job_user", 0)),
        bf_max_job_part=int(number("bf_max_job_part", 0)),
        bf_max_job_assoc=int(number("bf_max_job_assoc", 0)),
        bf_max_job_user_part=int(number("bf_max_job_user_part", 0)),
        bf_max_job_start=int(number("bf_max_job_start", 0)),
        bf_job_part_count_reserve=int(number("bf_job_part_count_reserve", 0)),
        bf_min_prio_reserve=number("bf_min_prio_reserve", 0.0),
        bf_min_age_reserve_s=number("bf_min_age_reserve", 0.0),
        bf_resolution_s=max(1.0, config.backfill_resolution_s),
        bf_window_s=max(MINUTE_S, config.backfill_window_s),
        max_switch_wait_s=config.max_switch_wait_s,
        time_min_as_soft_limit=config.takes_soft_limits,
        priority_weight_age=float(weights.get("age", 0)),
        priority_weight_fairshare=float(weights.get("fair_share", 0)),
        priority_weight_job_size=float(weights.get("job_size", 0)),
        priority_weight_qos=float(weights.get("qos", 0)),
        priority_weight_partition=float(weights.get("partition", 0)),
        priority_weight_assoc=float(weights.get("assoc", 0)),
        priority_weight_tres=tres_weights,
        priority_favor_small=config.priority_favor_small,
        priority_flags=tuple(PriorityFlag(word) for word in config.priority_flags if word in known),
        priority_max_age_s=config.priority_max_age_s or plain.priority_max_age_s,
        priority_calc_period_s=config.priority_calc_period_s or plain.priority_calc_period_s,
        priority_decay_half_life_s=plain.priority_decay_half_life_s
        if config.priority_decay_half_life_s is None
        else config.priority_decay_half_life_s,
        preempt_type=preempt_type_of(config.preempt_type),
        preempt_mode=preempt_mode_of(further.get("PreemptMode", "")),
        preempt_exempt_s=duration_s(further.get("PreemptExemptTime", ""), field="PreemptExemptTime") or 0.0,
        kill_wait_s=number("KillWait", plain.kill_wait_s, settings=further),
        message_timeout_s=number("MessageTimeout", plain.message_timeout_s, settings=further),
        accounting_storage_enforce=enforced,
    )


def _natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Return a key that sorts numbers in names by value, as Slurm numbers nodes."""
    return tuple((part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in _NUMBER.split(name))


def _kind(node: Node, switch: str) -> dict[str, Any]:
    """Return what the nodes of a group have in common."""
    return {
        "gpus": _gpus(node),
        "gpu_type": max(node.gpus, key=lambda pool: pool.total).gpu_type or "" if node.gpus else "",
        "cpus": max(1, node.cpus),
        "memory_mib": max(1, node.memory_mib),
        "features": node.features,
        "weight": float(node.weight),
        # Nodes without a leaf are together below one switch, too.
        "switch": switch or "(none)",
        "state": NodeState.UP if node.is_usable else NodeState.DRAINED,
    }


def _gpus(node: Node) -> int:
    return min(_MOST_GPUS, sum(pool.total for pool in node.gpus))


def partition_tables(
    partitions: Sequence[Partition],
    nodes: Sequence[tuple[Node, str]],
    qos: Sequence[QosTable],
    notes: list[str],
    preempting: "Mapping[str, PreemptRule]" = MappingProxyType({}),
) -> Iterator[PartitionTable]:
    """Return the partitions that have any of the nodes; what is not known of them is added to `notes`."""
    names = {node.name for node, _ in nodes}
    known = {table.name for table in qos}
    default = next((each.name for each in partitions if each.is_default), "")
    if not default and partitions:
        # Of equally many nodes, the one with the longest limit: a short one is for tests.
        widest = max(partitions, key=lambda each: (each.is_up, len(each.nodes), each.max_time_s or math.inf))
        default = widest.name
        notes.append(f"the snapshot does not show the default partition: jobs without one go to {default}")
    if odd := sorted({each.qos for each in partitions if each.qos and each.qos not in known}):
        notes.append(f"the limits of partition QOS {', '.join(odd)} are not known")
    for each in partitions:
        listed = [name for name in each.nodes if name in names]
        if not listed:
            notes.append(f"partition {each.name} has no nodes in the snapshot: it is left out")
            continue
        rule = preempting.get(each.name)
        yield PartitionTable(
            name=each.name,
            nodes=",".join(listed),
            priority_tier=min(_HIGHEST_TIER, each.priority_tier),
            priority_job_factor=min(_HIGHEST_TIER, each.priority_job_factor),
            max_time_s=each.max_time_s or None,
            max_nodes=each.max_nodes_per_job or None,
            default=each.name == default,
            state="up" if each.is_up else "down",
            qos=each.qos if each.qos in known else "",
            preempt_mode=preempt_mode_of(rule.mode) if rule and rule.mode else None,
            grace_s=rule.grace_s if rule else 0.0,
        )


def _preempting(table: QosTable, rules: "Mapping[str, PreemptRule]", qos: Sequence[QosTable]) -> QosTable:
    """Return a QOS with the rules of its preemption."""
    rule = rules.get(table.name)
    if rule is None:
        return table
    known = {each.name for each in qos}
    return replace(
        table,
        preempts=tuple(name for name in rule.preempts if name in known),
        preempt_mode=preempt_mode_of(rule.mode) if rule.mode else None,
        preempt_exempt_s=rule.exempt_s,
        grace_s=rule.grace_s,
    )


def _notes_on_nodes(snapshot: Snapshot) -> Iterator[str]:
    if closed := sum(not node.is_usable for node in snapshot.nodes):
        yield f"nodes that are down, drained or reserved start no job in the simulation: {closed}"
    if mixed := sum(len(node.gpus) > 1 for node in snapshot.nodes):
        yield f"nodes with several types of GPUs count as nodes of the most frequent type: {mixed}"
    if len({switch.level for switch in snapshot.topology.switches}) > 2:
        yield "switches above the leaves count as one spine"
    if snapshot.unread:
        yield f"not all of the site could be read: {snapshot.unread[0]}"
