"""Computes when a gang fits, by the time limits or by the expected ends of running jobs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.job import Allocation, Job, JobState
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.features.capacity import Fitter
from advisor.features.nodes import UNTYPED, Counts, NodeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The resources of running jobs, one row for each job on each of its nodes.

    `end_time` is infinite where no end is known. `vouched` means that no job is hidden, so that a node without any of
    these jobs is empty.
    """

    job_id: NDArray[np.int64]  # (n_holdings,)
    end_time: NDArray[np.float64]  # (n_holdings,)
    row: NDArray[np.intp]  # (n_holdings,)
    gpus: Counts  # (n_holdings, n_types)
    cpus: Counts  # (n_holdings,)
    memory_mib: NDArray[np.int64]  # (n_holdings,)
    vouched: bool


def earliest_by_limits(snapshot: Snapshot, table: NodeTable, job: Job) -> float | None:
    """Return the first instant at which a job's gang fits if each running job ends at its time limit.

    An upper bound if no other job takes the released resources; None where the gang does not fit even then, or where
    the ends that matter are unknown. A job without a request per node is assumed to be spread evenly.
    """
    if Fitter(snapshot, table).tier_now(job.gang, job.partitions) is not None:
        return snapshot.taken_at
    return earliest(snapshot, table, holdings_of(snapshot, table), job)


def earliest(
    snapshot: Snapshot, table: NodeTable, holdings: Holdings, job: Job, tier: LocalityTier = LocalityTier.CLUSTER
) -> float | None:
    """Return the first end of a running job after which a gang fits at a tier or closer; None if it never does."""
    times = np.sort(holdings.end_time[np.isfinite(holdings.end_time)])
    # More free resources never make a gang fit worse, so the first sufficient time can be bisected.
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        freed = without(table, holdings, holdings.end_time <= times[middle])
        tier_then = Fitter(snapshot, freed).tier_now(job.gang, job.partitions)
        if tier_then is not None and tier_then <= tier:
            high = middle
        else:
            low = middle + 1
    return max(snapshot.taken_at, float(times[low])) if low < len(times) else None


def latest_start_s(snapshot: Snapshot, table: NodeTable, holdings: Holdings, job: Job) -> float:
    """Return when a job starts as the first in line if others take all idle GPUs, in seconds; infinity for never.

    The holdings are those until the time limits of running jobs.
    """
    start = earliest(snapshot, replace(table, gpus_idle=np.zeros_like(table.gpus_idle)), holdings, job)
    return np.inf if start is None else start - snapshot.taken_at


def holdings_of(snapshot: Snapshot, table: NodeTable, remaining_s: Mapping[int, float] | None = None) -> Holdings:
    """Return the resources of running jobs until their limits or, where given, for their remaining run times."""
    held = list(_held(snapshot, table))
    gpus = np.zeros((len(held), len(table.gpu_types)), dtype=np.int32)
    for number, (job, allocation, rank, row) in enumerate(held):
        for column, count in _gpus_on(job, allocation, rank, table.gpus_total[row], table.gpu_types):
            gpus[number, column] += count
    return Holdings(
        job_id=np.array([job.job_id for job, *_ in held], dtype=np.int64),
        end_time=np.array([_end_time(job, snapshot.taken_at, remaining_s) for job, *_ in held], dtype=np.float64),
        row=np.array([row for *_, row in held], dtype=np.intp),
        gpus=gpus,
        cpus=np.array([_part(job.gang.cpus, len(on.nodes), rank) for job, on, rank, _ in held], dtype=np.int32),
        memory_mib=np.array([job.gang.memory_mib_per_node or 0 for job, *_ in held], dtype=np.int64),
        vouched="jobs" not in snapshot.config.private_data,
    )


def _held(snapshot: Snapshot, table: NodeTable) -> Iterator[tuple[Job, Allocation, int, int]]:
    """Yield each job with each of its nodes: the rank in the allocation and the row in the table."""
    for job in snapshot.jobs:
        if job.allocation is not None and not job.is_pending:
            for rank, name in enumerate(job.allocation.nodes):
                if name in table.row_by_name:
                    yield job, job.allocation, rank, table.row_by_name[name]


def _end_time(job: Job, now: float, remaining_s: Mapping[int, float] | None) -> float:
    """Return the end time of a job; infinity for a suspended one, whose end is unknown."""
    if job.end_time is None or job.state is JobState.SUSPENDED:
        return np.inf
    return job.end_time if remaining_s is None else now + remaining_s.get(job.job_id, np.inf)


def _gpus_on(
    job: Job, allocation: Allocation, rank: int, totals: Counts, types: tuple[str, ...]
) -> Iterator[tuple[int, int]]:
    """Yield the GPUs of a job on one node as (column, count); `totals` `(n_types,)` are the GPUs of the node."""
    there = np.flatnonzero(totals)
    exact = job.gang.per_node
    for gpu in exact or allocation.gpus:
        count = gpu.count if exact else _part(gpu.count, len(allocation.nodes), rank)
        name = gpu.gpu_type or UNTYPED
        if len(there) == 1:
            yield int(there[0]), count
        elif name in types:
            # Where the node has several types and none is named, its GPUs are counted as free only once it is empty.
            yield types.index(name), count


def _part(total: int, n_nodes: int, rank: int) -> int:
    """Return the share of the node at `rank` when a total is spread evenly, the rest on the first nodes."""
    return total // n_nodes + (rank < total % n_nodes)


def without(table: NodeTable, holdings: Holdings, gone: NDArray[np.bool_]) -> NodeTable:
    """Return the table after the release of the holdings marked in `gone` `(n_holdings,)`."""
    rows, n_nodes = holdings.row[gone], len(table.names)
    gpus, cpus, memory_mib = table.gpus_idle.copy(), table.cpus_idle.copy(), table.memory_idle_mib.copy()
    np.add.at(gpus, rows, holdings.gpus[gone])
    np.add.at(cpus, rows, holdings.cpus[gone])
    np.add.at(memory_mib, rows, holdings.memory_mib[gone])
    holders = np.bincount(holdings.row, minlength=n_nodes)
    emptied = (np.bincount(rows, minlength=n_nodes) == holders) & (holders > 0) & holdings.vouched
    # Resources that could not be ascribed to one job are free once no job is left on the node.
    return replace(
        table,
        gpus_idle=np.where(emptied[:, None], table.gpus_total, np.minimum(gpus, table.gpus_total)),
        cpus_idle=np.where(emptied, table.cpus_total, np.minimum(cpus, table.cpus_total)),
        memory_idle_mib=np.where(emptied, table.memory_total_mib, np.minimum(memory_mib, table.memory_total_mib)),
    )
