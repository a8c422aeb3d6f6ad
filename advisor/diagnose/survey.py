"""Sums up the cluster from one snapshot."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import MOST, GangRequest, GpuCount, GpuScope, whole_gpus
from advisor.domain.job import Job, JobState, tasks_of
from advisor.domain.overview import (
    GpuTypeOverview,
    IdleGpus,
    JobCounts,
    LargestGang,
    OldestPending,
    Overview,
    ShareOverview,
    StoppedPartition,
)
from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import (
    Chunk,
    Counts,
    Flags,
    NodeTable,
    bounds,
    chunks_ever,
    gpus_of,
    memory_is_shared_out,
    node_table,
    rows_of,
)
from advisor.features.queue import competing


def overview(snapshot: Snapshot) -> Overview:
    """Sum up a snapshot."""
    table = node_table(snapshot)
    pending = [job for job in snapshot.jobs if job.is_pending]
    wanting = [job for job in pending if job.gang.wants_gpus]
    # Requests that jobs share are counted once.
    gpus_by_gang = {number: gang.gpus_by_type for number, gang in {id(job.gang): job.gang for job in wanting}.items()}
    sized = [(job, gpus) for job in wanting if (gpus := gpus_by_gang[id(job.gang)]) is not None]
    unsized = [job for job in wanting if gpus_by_gang[id(job.gang)] is None]
    return Overview(
        taken_at=snapshot.taken_at,
        gpu_types=tuple(_types(snapshot, table, sized)),
        shares=tuple(_shares(snapshot, pending)),
        jobs=_job_counts(snapshot),
        pending_gpu_jobs=sum(map(tasks_of, wanting)),
        pending_gpu_jobs_unsized=sum(tasks_of(job) for job in unsized),
        pending_gpus=whole_gpus(
            (gpu_type, tasks_of(job) * count) for job, gpus in sized for gpu_type, count in gpus.items()
        ),
        pending_gpus_any_type=sum(tasks_of(job) * gpus.get(None, 0) for job, gpus in sized),
        oldest=_oldest(pending, snapshot.taken_at),
        unread=(*snapshot.unread, *_unknown_use(table)),
        stopped=tuple(_stopped(snapshot, table, pending)),
    )


def stopped_partitions(snapshot: Snapshot) -> tuple[StoppedPartition, ...]:
    """Return the partitions that are not up and for which GPU jobs wait that can start in no other."""
    down = {partition.name for partition in snapshot.partitions if not partition.is_up}
    pending = [job for job in snapshot.pending_gpu_jobs if not down.isdisjoint(job.partitions)]
    # Nodes are tabled for these jobs alone, since this is asked in every round.
    return tuple(_stopped(snapshot, node_table(snapshot), pending)) if pending else ()


def _stopped(snapshot: Snapshot, table: NodeTable, pending: Sequence[Job]) -> Iterator[StoppedPartition]:
    """Yield the partitions that are not up and for which GPU jobs wait that can start in no other."""
    up = {partition.name for partition in snapshot.partitions if partition.is_up}
    waiting = [job for job in pending if job.gang.wants_gpus and job.partitions and up.isdisjoint(job.partitions)]
    idle = table.gpus_startable.sum(axis=1)
    for partition in snapshot.partitions:
        jobs = [job for job in waiting if partition.name in job.partitions]
        if partition.is_up or not jobs:
            continue
        rows = [table.row_by_name[name] for name in partition.nodes if name in table.row_by_name]
        yield StoppedPartition(
            name=partition.name,
            pending_jobs=sum(map(tasks_of, jobs)),
            pending_gpus=sum(tasks_of(job) * sum((job.gang.gpus_by_type or {}).values()) for job in jobs),
            idle_gpus=int(idle[rows].sum()),
        )


def _unknown_use(table: NodeTable) -> Iterator[str]:
    for column, gpu_type in enumerate(table.gpu_types):
        nodes = int((~table.gpu_use_known[:, column]).sum())
        if nodes:
            yield f"how many {gpu_type} GPUs are in use on {nodes} of the nodes"


def _types(
    snapshot: Snapshot, table: NodeTable, pending: Sequence[tuple[Job, Mapping[str | None, int]]]
) -> Iterator[GpuTypeOverview]:
    idle = _idle_gpus(snapshot, table)
    largest = _largest_gangs(snapshot, table)
    for column, gpu_type in enumerate(table.gpu_types):
        known = bool(table.gpu_use_known[:, column].all())
        total, unused = table.gpus_total[:, column], table.gpus_idle[:, column]
        asking = [(tasks_of(job), gpus[gpu_type]) for job, gpus in pending if gpu_type in gpus]
        yield GpuTypeOverview(
            gpu_type=gpu_type,
            total=int(total.sum()),
            in_use=int((total - unused).sum()) if known else None,
            unavailable=int(unused[~table.usable].sum()) if known else None,
            idle=idle[column] if known else None,
            largest=largest[column] if known else None,
            pending_jobs=sum(tasks for tasks, _ in asking),
            pending_gpus=sum(tasks * gpus for tasks, gpus in asking),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """The least that a pending gang takes of one node, and the nodes it may take it from."""

    chunk: Chunk
    exclusive: bool
    partitions: tuple[str, ...]
    required_nodes: tuple[str, ...]
    excluded_nodes: tuple[str, ...]


def _piece(gang: GangRequest, partitions: tuple[str, ...], table: NodeTable) -> _Piece:
    gpus = _least_gpus(gang, table)
    return _Piece(
        chunk=Chunk(gpus=gpus, cpus=_least_cpus(gang, gpus), memory_mib=gang.memory_mib_per_node or 0),
        exclusive=gang.exclusive,
        partitions=partitions,
        # A list of required nodes may be filled up with others unless it is longer than the node count.
        required_nodes=gang.required_nodes if len(gang.required_nodes) >= (gang.most_nodes or np.inf) else (),
        excluded_nodes=gang.excluded_nodes,
    )


def _least_gpus(gang: GangRequest, table: NodeTable) -> tuple[GpuCount, ...]:
    """Return the fewest GPUs a gang can take of one of its nodes."""
    if gang.scope is not GpuScope.JOB:
        return gang.per_node or gang.per_task or gang.per_socket
    total = gang.gpu_count or 0
    largest = int(gpus_of(table.gpu_types, table.gpus_total, gang.gpu_type).max(initial=0))
    # When its other nodes give all they have, the last one gives what is left.
    left = 1 if gang.most_nodes is None else max(1, total - (gang.most_nodes - 1) * largest)
    return (GpuCount(gpu_type=gang.gpu_type, count=left),)


def _least_cpus(gang: GangRequest, gpus: tuple[GpuCount, ...]) -> int:
    """Return the CPUs for a number of GPUs, of one task, or an even share of all; 1 where none is known."""
    if gang.cpus_per_gpu is not None:
        return min(max(1, gang.cpus_per_gpu * sum(gpu.count for gpu in gpus)), MOST)
    if gang.per_task:
        return max(1, gang.cpus // gang.tasks)
    return 1 if gang.most_nodes is None else max(1, gang.cpus // gang.most_nodes)


def _idle_gpus(snapshot: Snapshot, table: NodeTable) -> list[IdleGpus]:
    """Part the idle GPUs of each type by what keeps them idle."""
    shared_out = memory_is_shared_out(snapshot.config)
    shape = table.gpus_total.shape
    served, by_gpus, by_gpus_and_memory, wanted = (np.zeros(shape, dtype=np.bool_) for _ in range(4))
    # A queue holds thousands of equal requests, and unequal ones leave equal pieces: nodes are asked once for each.
    competitors = competing(snapshot.pending_gpu_jobs, snapshot.taken_at)
    requests = {(id(job.gang), job.partitions): job.gang for job in competitors}
    for piece in {_piece(gang, partitions, table) for (_, partitions), gang in requests.items()}:
        chunk = piece.chunk
        columns = _columns(table, chunk.gpus)
        may_run = _open_to(table, piece) & (chunks_ever(table, chunk) >= 1)
        gpus = may_run.copy()
        for gpu in bounds(chunk.gpus):
            gpus &= gpus_of(table.gpu_types, table.gpus_idle, gpu.gpu_type) >= gpu.count
        memory = (table.memory_idle_mib >= chunk.memory_mib) | (not shared_out)
        cpus = table.cpus_idle >= chunk.cpus
        if piece.exclusive:
            gpus &= table.empty
        wanted |= may_run[:, None] & columns
        by_gpus |= gpus[:, None] & columns
        by_gpus_and_memory |= (gpus & memory)[:, None] & columns
        served |= (gpus & memory & cpus)[:, None] & columns
    no_cpu = np.broadcast_to(_without_cpu(table), shape)
    no_memory = np.broadcast_to(_without_memory(table, shared_out=shared_out), shape)
    # (n_nodes, n_types): the first that holds names what keeps the GPUs of a node idle.
    keeps = np.select(
        [no_cpu, no_memory, served | ~wanted, by_gpus_and_memory, by_gpus],
        [1, 2, 0, 1, 2],
        default=3,
    )
    idle = table.gpus_startable
    parts = [np.where(keeps == part, idle, 0).sum(axis=0) for part in range(4)]
    return [
        IdleGpus(startable=int(free), by_cpus=int(cpus), by_memory=int(memory), by_fragmentation=int(pieces_left))
        for free, cpus, memory, pieces_left in zip(*parts, strict=True)
    ]


def _columns(table: NodeTable, gpus: Iterable[GpuCount]) -> Flags:
    """Mark the types a request takes: `(n_types,)`."""
    asked = {gpu.gpu_type for gpu in gpus}
    return np.array([None in asked or gpu_type in asked for gpu_type in table.gpu_types], dtype=np.bool_)


def _open_to(table: NodeTable, piece: _Piece) -> Flags:
    """Mark the nodes a piece may be taken from: `(n_nodes,)`."""
    partitions = [number for number, name in enumerate(table.partition_names) if name in piece.partitions]
    member = np.asarray(table.partition_member[partitions].any(axis=0))
    if piece.required_nodes:
        required = np.zeros_like(member)
        required[rows_of(table, piece.required_nodes)] = True
        member &= required
    member[rows_of(table, piece.excluded_nodes)] = False
    return member


def _without_cpu(table: NodeTable) -> Flags:
    """Mark the nodes without an idle CPU: `(n_nodes, 1)`."""
    return np.asarray(table.cpus_idle[:, None] == 0)


def _without_memory(table: NodeTable, *, shared_out: bool) -> Flags:
    """Mark the nodes without idle memory, none where memory is not handed out: `(n_nodes, 1)`."""
    return np.asarray((table.memory_idle_mib[:, None] == 0) & shared_out)


def _largest_gangs(snapshot: Snapshot, table: NodeTable) -> list[LargestGang]:
    """Find the most GPUs of each type that could start together inside one partition that is up."""
    shut = _without_cpu(table) | _without_memory(table, shared_out=memory_is_shared_out(snapshot.config))
    free = np.where(shut, 0, table.gpus_startable)
    up = [snapshot.partitions_by_name[name].is_up for name in table.partition_names]
    leaves = int(table.leaf.max(initial=-1)) + 1
    return [
        _largest_gang(table, free[:, column], table.partition_member[up], leaves) for column in range(free.shape[1])
    ]


def _largest_gang(table: NodeTable, free: Counts, members: Flags, leaves: int) -> LargestGang:
    on_leaf = table.leaf >= 0
    by_partition = [np.where(member, free, 0) for member in members]
    return LargestGang(
        on_node=max((int(gpus.max(initial=0)) for gpus in by_partition), default=0),
        under_leaf=max(
            (int(np.bincount(table.leaf[on_leaf], weights=gpus[on_leaf]).max(initial=0)) for gpus in by_partition),
            default=0,
        )
        if leaves
        else None,
        anywhere=max((_joined(table, gpus) for gpus in by_partition), default=0),
    )


def _joined(table: NodeTable, gpus: Counts) -> int:
    """Return the most GPUs `(n_nodes,)` on nodes that Slurm joins in one job."""
    component = table.component
    if component is None:
        return int(gpus.sum())
    inside = component >= 0
    return int(np.bincount(component[inside], weights=gpus[inside]).max(initial=0))


def _shares(snapshot: Snapshot, pending: Sequence[Job]) -> Iterator[ShareOverview]:
    totals = [share for node in snapshot.nodes for share in node.shares]
    asked = [(tasks_of(job), share) for job in pending for share in job.gang.shares]
    for kind in sorted({share.kind for share in totals} | {share.kind for _, share in asked}):
        tasks = [(count, share.count) for count, share in asked if share.kind == kind]
        yield ShareOverview(
            kind=kind,
            total=sum(share.count for share in totals if share.kind == kind),
            pending_jobs=sum(count for count, _ in tasks),
            pending=sum(count * parts for count, parts in tasks),
        )


def _job_counts(snapshot: Snapshot) -> JobCounts:
    running = [job for job in snapshot.jobs if job.state is JobState.RUNNING]
    pending = [job for job in snapshot.jobs if job.is_pending]
    now = snapshot.taken_at
    return JobCounts(
        running=len(running),
        pending=sum(tasks_of(job) for job in pending),
        held=sum(tasks_of(job) for job in pending if job.held),
        dependent=sum(tasks_of(job) for job in pending if job.dependency),
        deferred=sum(tasks_of(job) for job in pending if job.eligible_time is not None and job.eligible_time > now),
        running_cpu_only=sum(1 for job in running if _asks_no_gpu(job.gang)),
        pending_cpu_only=sum(tasks_of(job) for job in pending if _asks_no_gpu(job.gang)),
        pending_gpus_unknown=sum(tasks_of(job) for job in pending if not job.gang.gpus_known),
    )


def _asks_no_gpu(gang: GangRequest) -> bool:
    return gang.gpus_known and not gang.wants_gpus and not gang.shares


def _oldest(pending: Iterable[Job], now: float) -> OldestPending | None:
    """Find the job that has been eligible longest; the lower id settles ties."""
    waiting = [
        (-job.queueing_delay_s(now), job.job_id)
        for job in pending
        if not job.held and not job.dependency and job.eligible_time is not None and job.eligible_time <= now
    ]
    if not waiting:
        return None
    delay_s, job_id = min(waiting)
    return OldestPending(job_id=job_id, queueing_delay_s=-delay_s)
