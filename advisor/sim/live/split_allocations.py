"""What running jobs hold on each node of a snapshot, in the form that the model of slurmctld takes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import GpuScope
from advisor.domain.job import Job
from advisor.domain.node import Node
from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import memory_is_shared_out
from advisor.features.observe.snapshot_graph import shared_out
from advisor.sim.traces.trace import Trace

_MOST_GPUS: Final = 64


@dataclass(slots=True)
class Omissions:
    """Counts of what is left out, by sentence; `{}` stands for the number."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, sentence: str, times: int = 1) -> None:
        """Count something under a sentence."""
        if times:
            self.counts[sentence] += times

    def sentences(self) -> tuple[str, ...]:
        """Return the sentences with their numbers, sorted."""
        return tuple(sorted(sentence.format(count) for sentence, count in self.counts.items()))


def gpus_of_node(node: Node) -> int:
    """Return the GPUs of a node, of all types."""
    return min(_MOST_GPUS, sum(pool.total for pool in node.gpus))


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAllocations:
    """What running jobs hold: one entry for each node of each job, job by job, nodes in order."""

    row: NDArray[np.int32]
    node: NDArray[np.int32]
    gpus: NDArray[np.int32]

    @classmethod
    def of(
        cls,
        jobs: Sequence[Job],
        holders: Sequence[int],
        nodes: Sequence[Node],
        row_by_node: Mapping[str, int],
        notes: Omissions,
    ) -> "SplitAllocations":
        """Return the allocations of running jobs.

        Slurm states the nodes of a job and its GPUs in all. Jobs of one node and jobs that take the same number on
        every node are certain, as are exclusive jobs, which hold all of their nodes. Any other job takes what is in use
        on its nodes beside the certain ones, node by node, and one GPU of each at least.
        """
        used = [
            gpus_of_node(node) if _used(node) is None else min(gpus_of_node(node), _used(node) or 0) for node in nodes
        ]
        free = list(used)
        split: dict[int, dict[int, int]] = {}
        uncertain = []
        for row in holders:
            places, count = places_of(jobs[row], row_by_node)
            if jobs[row].gang.exclusive:
                split[row] = {node: gpus_of_node(nodes[node]) for node in places}
                for node, gpus in split[row].items():
                    free[node] -= gpus
            elif len(places) == 1 or count == 0 or (count % len(places) == 0 and jobs[row].gang.scope is GpuScope.NODE):
                split[row] = _within(dict.fromkeys(places, count // len(places)), nodes)
                for node, gpus in split[row].items():
                    free[node] -= gpus
            else:
                uncertain.append(row)
        for row in uncertain:
            places, count = places_of(jobs[row], row_by_node)
            split[row] = _within(dict(zip(places, shared_out(places, count, free), strict=True)), nodes)
            for node, gpus in split[row].items():
                free[node] -= gpus
        notes.add(
            "{} running jobs hold different numbers of GPUs on their nodes: how many on which is inferred",
            len(uncertain),
        )
        # Jobs without GPUs hold CPUs on each of their nodes.
        entries = [
            (row, node, gpus)
            for row in holders
            for node, gpus in split[row].items()
            if gpus > 0 or not any(split[row].values())
        ]
        table = np.array(entries, dtype=np.int32).reshape(-1, 3)
        return cls(row=table[:, 0].copy(), node=table[:, 1].copy(), gpus=table[:, 2].copy())


def _used(node: Node) -> int | None:
    """Return the GPUs of a node that are in use; None if that is unknown."""
    counts = [pool.used for pool in node.gpus]
    return None if None in counts else sum(count or 0 for count in counts)


def places_of(job: Job, row_by_node: Mapping[str, int]) -> tuple[list[int], int]:
    """Return the nodes of a running job in order, and its GPUs."""
    if job.allocation is None:
        return [], 0
    places = sorted(row_by_node[name] for name in job.allocation.nodes if name in row_by_node)
    return places, sum(gpus.count for gpus in job.allocation.gpus)


def _within(gpus_by_node: dict[int, int], nodes: Sequence[Node]) -> dict[int, int]:
    """Return the GPUs by node, on each no more than it has."""
    return {node: min(gpus, gpus_of_node(nodes[node])) for node, gpus in gpus_by_node.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenByOthers:
    """What jobs without a row hold of each node, `(n_nodes,)` each."""

    gpus: NDArray[np.int32]
    cpus: NDArray[np.int32]
    memory_mib: NDArray[np.int64]


def taken_by_others(snapshot: Snapshot, nodes: Sequence[Node], held: SplitAllocations, trace: Trace) -> TakenByOthers:
    """Return what is in use on each node beyond what the jobs with rows hold there."""
    asked, count = trace.jobs[held.row], len(nodes)
    nodes_of_job = np.maximum(1, asked["nodes_min"])
    at_least = np.where(asked["gpus"] == 0, 1, 0)
    cpus_held = np.maximum.reduce([held.gpus * asked["cpus_per_gpu"], -(-asked["cpus"] // nodes_of_job), at_least])
    mib_held = np.maximum(held.gpus * asked["memory_mib_per_gpu"], asked["memory_mib"])
    shared_out = memory_is_shared_out(snapshot.config)
    gpus, cpus, memory_mib = (
        _beyond(count, held.node, np.where(asked["exclusive"] == 1, np.array(total)[held.node], part), total, used)
        for part, total, used in (
            (held.gpus, [gpus_of_node(node) for node in nodes], [_used(node) or 0 for node in nodes]),
            (cpus_held, [max(1, node.cpus) for node in nodes], [node.cpus_used for node in nodes]),
            (
                mib_held,
                [max(1, node.memory_mib) for node in nodes],
                [node.memory_used_mib if shared_out else 0 for node in nodes],
            ),
        )
    )
    return TakenByOthers(gpus=gpus.astype(np.int32), cpus=cpus.astype(np.int32), memory_mib=memory_mib)


def _beyond(
    count: int, node: NDArray[np.int32], part: NDArray[np.int64], total: Sequence[int], used: Sequence[int]
) -> NDArray[np.int64]:
    """Return what is in use on each node beyond the parts, `(n_held,)`, that jobs are known to hold."""
    known = np.bincount(node, part, count).astype(np.int64)
    return np.clip(np.minimum(used, total) - known, 0, np.maximum(0, np.array(total) - known))
