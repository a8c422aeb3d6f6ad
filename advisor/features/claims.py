"""Computes the resources that a gang takes of the nodes on which it starts."""

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import GangRequest, GpuCount
from advisor.features.nodes import Chunk, Counts, Mebibytes, NodeTable, chunks_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The resources that one gang takes of some nodes, row by row."""

    rows: NDArray[np.intp]  # (n_rows,)
    gpus: Counts  # (n_rows, n_types)
    cpus: Counts  # (n_rows,)
    memory_mib: Mebibytes  # (n_rows,)


def claim(table: NodeTable, gang: GangRequest, rows: NDArray[np.intp]) -> Claim:
    """Return the idle resources that a gang takes of nodes that hold it, `rows` `(n_rows,)`, filled one by one."""
    if gang.exclusive:
        return Claim(
            rows=rows, gpus=table.gpus_idle[rows], cpus=table.cpus_idle[rows], memory_mib=table.memory_idle_mib[rows]
        )
    gpus = _gpus(table, gang, rows)
    cpus = np.minimum(table.cpus_idle[rows], _cpus(gang, gpus.sum(axis=1, dtype=np.int64)))
    return Claim(
        rows=rows,
        gpus=gpus,
        cpus=cpus.astype(np.int32),
        memory_mib=np.minimum(table.memory_idle_mib[rows], gang.memory_mib_per_node or 0),
    )


def _gpus(table: NodeTable, gang: GangRequest, rows: NDArray[np.intp]) -> Counts:
    """Return the GPUs that a gang takes of each node, `(n_rows, n_types)`, by the form of request that binds."""
    taken = np.zeros((len(rows), len(table.gpu_types)), dtype=np.int32)
    idle = table.gpus_idle[rows]
    if gang.per_job:
        most = table.cpus_idle[rows] // gang.cpus_per_gpu if gang.cpus_per_gpu else idle.sum(axis=1)
        per_node = sum(gpu.count for gpu in gang.per_node)
        most = np.minimum(most, per_node) if per_node else most
        for gpu in _typed_first(gang.per_job):
            room = np.minimum(_left(table, idle - taken, gpu), most - taken.sum(axis=1))
            _take(table, taken, idle, gpu, _filled(room, gpu.count))
    elif gang.per_task:
        chunk = Chunk(gpus=gang.per_task, cpus=max(1, gang.cpus // gang.tasks))
        room = chunks_in(table.gpu_types, idle, table.cpus_idle[rows], table.memory_idle_mib[rows], chunk)
        tasks = _filled(room, gang.tasks)
        for gpu in _typed_first(gang.per_task):
            _take(table, taken, idle, gpu, tasks * gpu.count)
    else:
        for gpu in _typed_first((*gang.per_node, *gang.per_socket)):
            _take(table, taken, idle, gpu, np.full(len(rows), gpu.count))
    return taken


def _typed_first(counts: tuple[GpuCount, ...]) -> list[GpuCount]:
    return sorted(counts, key=lambda gpu: gpu.gpu_type is None)


def _left(table: NodeTable, gpus: Counts, gpu: GpuCount) -> Counts:
    """Return the GPUs of the type of a request on each node: `(n_rows,)`."""
    if gpu.gpu_type is None:
        return np.asarray(gpus.sum(axis=1), dtype=np.int32)
    if gpu.gpu_type not in table.gpu_types:
        return np.zeros(len(gpus), dtype=np.int32)
    return np.asarray(gpus[:, table.gpu_types.index(gpu.gpu_type)])


def _filled(room: NDArray[np.integer], total: int) -> NDArray[np.int64]:
    """Fill nodes one by one with a total, and leave one for each node after; `room` `(n_rows,)` bounds each."""
    counts = np.zeros(len(room), dtype=np.int64)
    for place, most in enumerate(room.tolist()):
        after = len(room) - place - 1
        counts[place] = min(most, max(min(1, total), total - after))
        total -= int(counts[place])
    # What was left for nodes that have less goes to those that have more.
    for place in np.flatnonzero(counts < room).tolist():
        more = min(int(room[place] - counts[place]), total)
        counts[place] += more
        total -= more
    return counts


def _take(table: NodeTable, taken: Counts, idle: Counts, gpu: GpuCount, counts: NDArray[np.int64]) -> None:
    """Add `counts` `(n_rows,)` GPUs of a request to `taken`, of any type where none is named."""
    for column, name in enumerate(table.gpu_types):
        if gpu.gpu_type in (None, name):
            more = np.minimum(counts, idle[:, column] - taken[:, column])
            taken[:, column] += more.astype(np.int32)
            counts = counts - more


def _cpus(gang: GangRequest, gpus: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the CPUs on each node, in proportion to its GPUs and one at least: `(n_rows,)`."""
    weight = gpus if gpus.any() else np.ones_like(gpus)
    share = -(-gang.cpus * weight // max(1, int(weight.sum())))
    return np.maximum(np.maximum(share, (gang.cpus_per_gpu or 0) * gpus), 1)
