"""Turns a snapshot into what the model of slurmctld runs on: a cluster, rows of a trace, and allocations.

Jobs that the model does not know have no row: while they run, what they hold stays taken, and while they pend, they do
not start. `left_out` lists in plain sentences what the model leaves out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.job import JobState
from advisor.domain.node import Node
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import TopologyKind
from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster, SlurmParameters
from advisor.sim.live.snapshot_jobs import is_waiting, jobs_with_rows, note_requests, trace_of
from advisor.sim.live.split_allocations import Omissions, SplitAllocations, taken_by_others
from advisor.sim.slurm.site_cluster import groups_of, nodes_by_leaf, parameters_of, partition_tables
from advisor.sim.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTurn:
    """A node stops taking jobs, and keeps those that run on it, or takes jobs again."""

    time: float
    is_usable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotModel:
    """A snapshot as the model of slurmctld takes it.

    Rows of `trace` are the running and the pending jobs that the model knows, by submit time and job id; the waiting
    tasks of an array have one id. Nodes stand leaf by leaf. The arrays of allocations, `(n_held,)`, have one entry for
    each node of each running job, job by job. `turns_by_node` is what happens to nodes after the snapshot.
    """

    taken_at: float
    cluster: Cluster
    trace: Trace
    rows_by_id: Mapping[int, Sequence[int]]
    node_names: tuple[str, ...]
    leaf: NDArray[np.int32]  # (n_nodes,)
    is_up: NDArray[np.int8]  # (n_nodes,): 0 for nodes that start no job
    gpus_taken: NDArray[np.int32]  # (n_nodes,): by jobs without a row
    cpus_taken: NDArray[np.int32]  # (n_nodes,): by jobs without a row
    memory_taken_mib: NDArray[np.int64]  # (n_nodes,): by jobs without a row
    held_row: NDArray[np.int32]
    held_node: NDArray[np.int32]
    held_gpus: NDArray[np.int32]
    start_time: NDArray[np.float64]  # (n_jobs,): NaN for a pending job
    eligible_time: NDArray[np.float64]  # (n_jobs,)
    is_waiting: NDArray[np.bool_]  # (n_jobs,): pending and not eligible
    priority: NDArray[np.float64]  # (n_jobs,): as Slurm has it, NaN for a running job
    is_ending: NDArray[np.bool_]  # (n_jobs,): completing, so that its GPUs are free in a moment
    left_out: tuple[str, ...]
    turns_by_node: Mapping[str, Sequence[NodeTurn]] = field(default_factory=dict)


def model_of(snapshot: Snapshot, parameters: SlurmParameters | None = None, *, with_jobs: bool = True) -> SnapshotModel:
    """Return the model of a snapshot; `parameters` take the place of those in its configuration.

    Raises `SimulationError` if no node has GPUs, or, `with_jobs`, if no job has a row.
    """
    notes = Omissions()
    placed = _placed_nodes(snapshot, notes)
    nodes = [node for node, _ in placed]
    if not nodes:
        raise SimulationError("the snapshot has no nodes with GPUs: there is nothing to simulate")
    row_by_node = {node.name: row for row, node in enumerate(nodes)}
    jobs = jobs_with_rows(snapshot, row_by_node, notes)
    if with_jobs and not jobs:
        raise SimulationError("the snapshot has no job with a known number of GPUs: there is nothing to simulate")
    note_requests(snapshot, notes)
    groups = tuple(groups_of(placed))
    cluster = Cluster(
        nodes=groups,
        slurm=parameters or parameters_of(snapshot.config),
        # Every job names its partition, so that the default and what else is not known of them do not matter.
        partitions=tuple(partition_tables(snapshot.partitions, placed, (), [])),
    )
    trace = trace_of(snapshot, jobs, max(group.gpus for group in groups))
    holders = [row for row, job in enumerate(jobs) if not job.is_pending]
    held = SplitAllocations.of(jobs, holders, nodes, row_by_node, notes)
    for name in ("gpus", "gpus_min", "gpus_max"):
        trace.jobs[name][holders] = np.bincount(held.row, held.gpus, len(jobs))[holders]
    for name in ("nodes_min", "nodes_max"):
        trace.jobs[name][holders] = np.maximum(1, np.bincount(held.row, minlength=len(jobs)))[holders]
    taken = taken_by_others(snapshot, nodes, held, trace)
    rows_by_id: dict[int, list[int]] = {}
    for row, job in enumerate(jobs):
        rows_by_id.setdefault(job.job_id, []).append(row)
    now = snapshot.taken_at
    return SnapshotModel(
        taken_at=now,
        cluster=cluster,
        trace=trace,
        rows_by_id=rows_by_id,
        node_names=tuple(node.name for node in nodes),
        leaf=np.cumsum([0, *(one[1] != other[1] for one, other in pairwise(placed))], dtype=np.int32),
        is_up=np.array([node.is_usable for node in nodes], dtype=np.int8),
        gpus_taken=taken.gpus,
        cpus_taken=taken.cpus,
        memory_taken_mib=taken.memory_mib,
        held_row=held.row,
        held_node=held.node,
        held_gpus=held.gpus,
        start_time=np.array(
            [np.nan if job.is_pending else now if job.start_time is None else min(now, job.start_time) for job in jobs]
        ),
        eligible_time=np.array(
            [job.submit_time if job.eligible_time is None else max(job.submit_time, job.eligible_time) for job in jobs]
        ),
        is_waiting=np.array([job.is_pending and is_waiting(job, now) for job in jobs], dtype=np.bool_),
        priority=np.array([float(job.priority or 0) if job.is_pending else np.nan for job in jobs]),
        is_ending=np.array([job.state is JobState.COMPLETING for job in jobs], dtype=np.bool_),
        left_out=notes.sentences(),
    )


def _placed_nodes(snapshot: Snapshot, notes: Omissions) -> list[tuple[Node, str]]:
    """Return the nodes, leaf by leaf and by name, with the names of their leaf switches.

    Nodes without GPUs are among them if a partition holds them beside nodes with GPUs.
    """
    if snapshot.topology.kind in (TopologyKind.BLOCK, TopologyKind.OTHER):
        notes.add("the topology is not a tree: its blocks count as leaf switches")
    has_gpus = {node.name for node in snapshot.nodes if any(pool.total for pool in node.gpus)}
    mixed = [partition.nodes for partition in snapshot.partitions if not has_gpus.isdisjoint(partition.nodes)]
    kept = has_gpus.union(*mixed) if has_gpus else has_gpus
    placed = [(node, switch) for node, switch in nodes_by_leaf(snapshot) if node.name in kept]
    notes.add(
        "{} nodes with several types of GPUs count as nodes of the most frequent type",
        sum(len(node.gpus) > 1 for node, _ in placed),
    )
    notes.add("{} nodes are down, drained or reserved at first", sum(not node.is_usable for node, _ in placed))
    return placed
