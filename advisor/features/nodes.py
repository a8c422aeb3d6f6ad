"""Holds the nodes of a snapshot as arrays, made once per snapshot."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import MOST, GpuCount
from advisor.domain.job import JobState
from advisor.domain.node import Node
from advisor.domain.site import Partition, SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import Topology, TopologyKind

Flags = NDArray[np.bool_]
Counts = NDArray[np.int32]
Mebibytes = NDArray[np.int64]
Floats = NDArray[np.float64]

# What stands for a node that several users hold; no name of a user is that.
SEVERAL = "\0"
# The type name of GPUs for which Slurm has no type.
UNTYPED = "gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTable:
    """The nodes of a snapshot as arrays; rows stand in the order of `names`.

    `leaf` and `spine` number the leaf and the topmost switch above each node, -1 for none. Counts of idle things
    say nothing about whether the node takes new jobs; `usable` does. `holder` is the user whose jobs hold a node, ""
    where none do and `SEVERAL` for several; `owned` marks the nodes that a user shares with no other. `gres` maps
    resources that are no GPUs to how much of them is idle, `gres_total` to all of it.
    """

    names: tuple[str, ...]
    row_by_name: Mapping[str, int]
    usable: Flags  # (n_nodes,)
    gpu_types: tuple[str, ...]
    gpus_total: Counts  # (n_nodes, n_types)
    gpus_idle: Counts  # (n_nodes, n_types), without any holder, in whole or in part; 0 where their use is unknown
    gpu_use_known: Flags  # (n_nodes, n_types)
    cpus_total: Counts  # (n_nodes,)
    cpus_idle: Counts  # (n_nodes,)
    memory_total_mib: Mebibytes  # (n_nodes,)
    memory_idle_mib: Mebibytes  # (n_nodes,)
    tmp_disk_mib: Mebibytes  # (n_nodes,), -1 where it is unknown
    gres_total: Mapping[tuple[str, str | None], Mebibytes]  # (n_nodes,) each
    gres_idle: Mapping[tuple[str, str | None], Mebibytes]  # (n_nodes,) each
    features: Mapping[str, Flags]  # (n_nodes,) each
    holder: NDArray[np.object_]  # (n_nodes,)
    owned: Flags  # (n_nodes,)
    leaf: Counts  # (n_nodes,)
    spine: Counts  # (n_nodes,)
    is_tree: bool
    partition_names: tuple[str, ...]
    partition_member: Flags  # (n_partitions, n_nodes)
    rank: NDArray[np.intp]  # (n_nodes,), the place of each node in the order of names

    @property
    def component(self) -> Counts | None:
        """The topmost switch above each node, -1 for none, `(n_nodes,)`; None where Slurm joins all nodes.

        On a tree Slurm starts no job on nodes that no switch joins.
        """
        return np.where(self.spine >= 0, self.spine, self.leaf).astype(np.int32) if self.is_tree else None

    @property
    def gpus_startable(self) -> Counts:
        """Idle GPUs of usable nodes, 0 on the others: `(n_nodes, n_types)`."""
        return np.where(self.usable[:, None], self.gpus_idle, 0).astype(np.int32)

    @property
    def empty(self) -> Flags:
        """Whether no job holds any part of a node, as an exclusive job requires: `(n_nodes,)`."""
        return np.asarray((self.cpus_idle == self.cpus_total) & (self.gpus_idle == self.gpus_total).all(axis=1))


def node_table(snapshot: Snapshot) -> NodeTable:
    """Build the table of a snapshot's nodes, in the snapshot's order."""
    nodes = snapshot.nodes
    row_by_name = {node.name: row for row, node in enumerate(nodes)}
    gpu_types = tuple(sorted({pool.gpu_type or UNTYPED for node in nodes for pool in node.gpus}))
    column_by_type = {gpu_type: column for column, gpu_type in enumerate(gpu_types)}
    total = np.zeros((len(nodes), len(gpu_types)), dtype=np.int32)
    idle = np.zeros_like(total)
    known = np.ones(total.shape, dtype=np.bool_)
    for row, node in enumerate(nodes):
        for pool in node.gpus:
            column = column_by_type[pool.gpu_type or UNTYPED]
            total[row, column] += pool.total
            idle[row, column] += pool.idle
            known[row, column] &= pool.used is not None
    for row, count in _gpus_in_parts(snapshot, row_by_name).items():
        # Slurm does not show which of a node's types is shared; then none of them is promised.
        idle[row] = np.maximum(0, idle[row] - count)
    gres_total, gres_idle = _gres(nodes)
    holder, owned = _holders(snapshot, row_by_name)
    return NodeTable(
        names=tuple(node.name for node in nodes),
        row_by_name=row_by_name,
        usable=np.array([node.is_usable for node in nodes], dtype=np.bool_),
        gpu_types=gpu_types,
        gpus_total=total,
        gpus_idle=idle,
        gpu_use_known=known,
        cpus_total=np.array([node.cpus for node in nodes], dtype=np.int32),
        cpus_idle=_cpus_idle(snapshot),
        memory_total_mib=np.array([node.memory_mib for node in nodes], dtype=np.int64),
        memory_idle_mib=np.array([max(0, node.memory_mib - node.memory_used_mib) for node in nodes], dtype=np.int64),
        tmp_disk_mib=np.array(
            [-1 if node.tmp_disk_mib is None else node.tmp_disk_mib for node in nodes], dtype=np.int64
        ),
        gres_total=gres_total,
        gres_idle=gres_idle,
        features=_features(nodes),
        holder=holder,
        owned=owned,
        leaf=_switch_index(snapshot.topology, row_by_name, leaves=True),
        spine=_switch_index(snapshot.topology, row_by_name, leaves=False),
        is_tree=snapshot.topology.kind is TopologyKind.TREE and bool(snapshot.topology.switches),
        partition_names=tuple(partition.name for partition in snapshot.partitions),
        partition_member=_membership(snapshot, row_by_name),
        rank=np.argsort(np.argsort(np.array([node.name for node in nodes], dtype=np.str_))),
    )


def _gres(
    nodes: Sequence[Node],
) -> tuple[Mapping[tuple[str, str | None], Mebibytes], Mapping[tuple[str, str | None], Mebibytes]]:
    """Return the resources that are no GPUs, all of them and the idle ones, by name and type."""
    total: dict[tuple[str, str | None], Mebibytes] = {}
    idle: dict[tuple[str, str | None], Mebibytes] = {}
    for row, node in enumerate(nodes):
        for pool in node.gres:
            key = pool.name, pool.gres_type
            for counts, number in ((total, pool.total), (idle, max(0, pool.total - pool.used))):
                counts.setdefault(key, np.zeros(len(nodes), dtype=np.int64))[row] += number
    return total, idle


def _features(nodes: Sequence[Node]) -> Mapping[str, Flags]:
    """Return which nodes have each feature."""
    found: dict[str, Flags] = {}
    for row, node in enumerate(nodes):
        for name in node.features:
            found.setdefault(name, np.zeros(len(nodes), dtype=np.bool_))[row] = True
    return found


def _holders(snapshot: Snapshot, row_by_name: Mapping[str, int]) -> tuple[NDArray[np.object_], Flags]:
    """Return whose jobs hold each node, and the nodes that one user does not share; found only if a job asks."""
    holder, owned = np.full(len(row_by_name), "", dtype=np.object_), np.zeros(len(row_by_name), dtype=np.bool_)
    if not [job for job in snapshot.jobs if job.gang.only_beside]:
        return holder, owned
    for job in snapshot.jobs:
        if job.allocation is None or job.state is JobState.PENDING:
            continue
        for row in (row_by_name[name] for name in job.allocation.nodes if name in row_by_name):
            holder[row] = job.user if holder[row] in ("", job.user) else SEVERAL
            owned[row] |= bool(job.gang.only_beside)
    return holder, owned


def _cpus_idle(snapshot: Snapshot) -> Counts:
    """Count the CPUs of each node that a job could have now: `(n_nodes,)`.

    Where each partition of a node is OverSubscribe=FORCE:n, n jobs share each CPU, so that a CPU is idle for one more
    job until n hold it.
    """
    nodes, sharers = snapshot.nodes, sharers_by_partition(snapshot.partitions)
    taken = np.array([node.cpus_used + (node.cpus_reserved or 0) for node in nodes], dtype=np.int32)
    total = np.array([node.cpus for node in nodes], dtype=np.int32)
    idle: Counts = np.maximum(0, total - taken)
    if not sharers:
        return idle
    jobs_by_cpu = np.array(
        [min((sharers.get(name, 1) for name in node.partitions), default=1) for node in nodes], dtype=np.int32
    )
    held, row_by_name = np.zeros(len(nodes)), {node.name: row for row, node in enumerate(nodes)}
    for job in snapshot.jobs:
        if job.allocation is not None and not job.is_pending:
            for name in job.allocation.nodes:
                if name in row_by_name:
                    held[row_by_name[name]] += math.ceil(job.gang.cpus / len(job.allocation.nodes))
    shared = np.clip(jobs_by_cpu * total - np.maximum(held, taken), 0, total).astype(np.int32)
    return np.asarray(np.where(jobs_by_cpu > 1, shared, idle))


def sharers_by_partition(partitions: Iterable[Partition]) -> Mapping[str, int]:
    """Return how many jobs share each CPU of the partitions that force them to, by name; one such job is none."""
    words = {partition.name: partition.over_subscribe.upper().partition(":") for partition in partitions}
    # Slurm's default is four.
    counts = {name: int(jobs) if jobs.isdecimal() else 4 for name, (word, _, jobs) in words.items() if word == "FORCE"}
    return {name: jobs for name, jobs in counts.items() if jobs > 1}


def _gpus_in_parts(snapshot: Snapshot, row_by_name: Mapping[str, int]) -> Mapping[int, int]:
    """Count the GPUs of each row that jobs hold in parts.

    Slurm counts such a GPU as idle, yet gives it to no job as a whole. It fills one before it opens the next,
    unless LL_SHARED_GRES tells it to spread them; then each job is taken to have opened its own.
    """
    spreads = any(word.upper() == "LL_SHARED_GRES" for word in snapshot.config.select_parameters)
    held: dict[tuple[int, str], list[int]] = {}
    for job in snapshot.jobs:
        if job.gang.shares and job.allocation is not None and job.state is not JobState.PENDING:
            for row in (row_by_name[name] for name in job.allocation.nodes if name in row_by_name):
                for share in job.gang.shares:
                    held.setdefault((row, share.kind), []).append(share.count)
    in_parts: dict[int, int] = {}
    for (row, kind), counts in held.items():
        node = snapshot.nodes[row]
        parts = sum(share.count for share in node.shares if share.kind == kind)
        per_gpu = max(1, parts // max(1, sum(pool.total for pool in node.gpus))) if parts else sum(counts)
        opened = counts if spreads else [sum(counts)]
        in_parts[row] = in_parts.get(row, 0) + sum(math.ceil(count / per_gpu) for count in opened)
    return in_parts


def _switch_index(topology: Topology, row_by_name: Mapping[str, int], *, leaves: bool) -> Counts:
    """Find the leaf or the topmost switch that holds each node: `(n_nodes,)` indices, -1 for none."""
    index = np.full(len(row_by_name), -1, dtype=np.int32)
    # Switches stand sorted by level, so the topmost one that holds a node writes last.
    for number, switch in enumerate(topology.switches):
        if (switch.level == 0) == leaves:
            index[[row_by_name[name] for name in switch.nodes if name in row_by_name]] = number
    return index


def _membership(snapshot: Snapshot, row_by_name: Mapping[str, int]) -> Flags:
    """Mark the nodes of each partition: `(n_partitions, n_nodes)`; nodes speak where a partition lists none."""
    member = np.zeros((len(snapshot.partitions), len(row_by_name)), dtype=np.bool_)
    for number, partition in enumerate(snapshot.partitions):
        names = partition.nodes or [node.name for node in snapshot.nodes if partition.name in node.partitions]
        member[number, [row_by_name[name] for name in names if name in row_by_name]] = True
    return member


def rows_of(table: NodeTable, names: Iterable[str]) -> list[int]:
    """Return the rows of the nodes with these names; unknown names are skipped."""
    return [table.row_by_name[name] for name in names if name in table.row_by_name]


def memory_is_shared_out(config: SiteConfig) -> bool:
    """Return whether Slurm allocates memory like CPUs; True if SelectTypeParameters is unknown."""
    words = config.select_parameters
    return not words or any("MEMORY" in word.upper() for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Resources requested together on one node; types in `gpus` can be None for any."""

    gpus: tuple[GpuCount, ...] = ()
    cpus: int = 1
    memory_mib: int = 0

    def __post_init__(self) -> None:
        if self.cpus < 1:
            raise ValueError(f"a chunk of {self.cpus} CPUs is not one Slurm would start")


def chunks_ever(table: NodeTable, chunk: Chunk) -> Counts:
    """Count how many such chunks each node would hold if it were empty and in service: `(n_nodes,)`."""
    return chunks_in(table.gpu_types, table.gpus_total, table.cpus_total, table.memory_total_mib, chunk)


def chunks_in(types: tuple[str, ...], gpus: Counts, cpus: Counts, memory_mib: Mebibytes, chunk: Chunk) -> Counts:
    """Count how many such chunks the given amounts hold, `gpus` being `(n_nodes, n_types)`: `(n_nodes,)`."""
    held = cpus // chunk.cpus
    if chunk.memory_mib:
        held = np.minimum(held, memory_mib // chunk.memory_mib)
    for gpu in bounds(chunk.gpus):
        held = np.minimum(held, gpus_of(types, gpus, gpu.gpu_type) // gpu.count)
    return held.astype(np.int32)


def gpus_of(types: tuple[str, ...], gpus: Counts, gpu_type: str | None) -> Counts:
    """Return the GPUs of one type, or of all (None), on each node: `(n_nodes,)` out of `(n_nodes, n_types)`."""
    if gpu_type is None:
        return np.asarray(gpus.sum(axis=1, dtype=np.int32))
    if gpu_type not in types:
        return np.zeros(len(gpus), dtype=np.int32)
    return np.asarray(gpus[:, types.index(gpu_type)])


def bounds(counts: tuple[GpuCount, ...]) -> tuple[GpuCount, ...]:
    """Convert counts requested together into bounds that can be checked one by one.

    GPUs of any type can be of a type that is also requested by name, so they count in the sum of all counts.
    """
    typed = tuple(gpu for gpu in counts if gpu.gpu_type is not None and gpu.count)
    if any(gpu.gpu_type is None and gpu.count for gpu in counts):
        return (*typed, GpuCount(count=min(sum(gpu.count for gpu in counts), MOST)))
    return typed
