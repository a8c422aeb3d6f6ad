"""Finds the pending gangs that starve, the jobs that have passed them, and what would end it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import GangRequest
from advisor.domain.job import Job
from advisor.domain.outcome import JobOutcome
from advisor.domain.snapshot import Snapshot
from advisor.domain.waiting_gangs import MOST, StarvedGang
from advisor.features.nodes import Counts, Flags, Floats, NodeTable, gpus_of, node_table, rows_of
from advisor.features.queue import competing, jobs_within_depth
from advisor.planning.earliest import earliest_by_limits, holdings_of, without

# The first in line for which scattered GPUs are counted.
_MOST_GANGS: Final = 200


class _Run(NamedTuple):
    """A run of a GPU job, until now if it has not ended."""

    eligible_time: float
    start_time: float
    end_time: float
    gpus: int
    nodes: tuple[str, ...]
    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Passing:
    """How a pending job is passed now, and what would end it; None where it is not known, or not so.

    `running` are those of others that became eligible after it and run on its nodes: user, jobs and GPUs, most first.
    `planned_time` is when Slurm plans its start, `fits_time` when it fits at the latest by the limits of running jobs.
    Backfill keeps no nodes for a job that is not among its first `depth`, below the priority `low`, younger than
    `young_s`, behind the first `kept` of its partition, or that fits beyond its window of `window_s`. `nodes` are those
    that it fits on at `fits_time`; none if it can be spread in other ways.
    """

    running: tuple[tuple[str, int, int], ...]
    planned_time: float | None
    fits_time: float | None
    depth: int | None
    low: int | None
    young_s: float | None
    kept: int | None
    window_s: float | None
    nodes: tuple[str, ...]


def long_waiting(snapshot: Snapshot, longest_s: float) -> list[Job]:
    """Return the gangs that wait for GPUs and have been eligible for longer than a bound."""
    now = snapshot.taken_at
    return [
        job
        for job in competing(snapshot.pending_gpu_jobs, now)
        if (job.gang.gpu_count or 0) > 1 and job.queueing_delay_s(now) > longest_s and not job.reservation
    ]


def starved(snapshot: Snapshot, ended: Iterable[JobOutcome], longest_s: float) -> tuple[StarvedGang, ...]:
    """Return the gangs that starve, the longest first, by the running jobs and by those that have ended.

    Without the nodes that a job held, it counts as none that passed.
    """
    waiting = long_waiting(snapshot, longest_s)
    if not waiting:
        return ()
    runs, nodes = [*_running(snapshot), *_over(ended)], _Nodes(node_table(snapshot))
    found = (_starved(job, runs, nodes, snapshot.taken_at, longest_s) for job in waiting)
    return tuple(sorted((gang for gang in found if gang), key=lambda gang: (gang.since_time, gang.job_id)))[:MOST]


def passing(snapshot: Snapshot, job: Job) -> Passing:
    """Return how a job that waits for GPUs is passed now, and what would end it."""
    now, config, table = snapshot.taken_at, snapshot.config, node_table(snapshot)
    by_user: dict[str, tuple[int, int]] = {}
    for run in _passed(job, _running(snapshot), _Nodes(table), now):
        jobs, gpus = by_user.get(run.user, (0, 0))
        by_user[run.user] = jobs + 1, gpus + run.gpus
    fits_time = earliest_by_limits(snapshot, table, job)
    planned_time = job.start_time if job.is_planned_after(now) else None
    is_beyond = fits_time is not None and fits_time - now > config.backfill_window_s
    return Passing(
        running=tuple(sorted(((user, *counts) for user, counts in by_user.items()), key=lambda of: (-of[2], of[0]))),
        planned_time=planned_time,
        fits_time=fits_time,
        depth=None if job.job_id in jobs_within_depth(snapshot) else config.backfill_depth,
        low=config.reserves_from_priority if job.is_below(config.reserves_from_priority) else None,
        young_s=config.reserves_after_s if job.queueing_delay_s(now) < config.reserves_after_s else None,
        kept=(config.reserves_first or None) if planned_time is None else None,
        window_s=config.backfill_window_s if is_beyond else None,
        nodes=() if fits_time is None else _nodes_at(snapshot, table, job, fits_time),
    )


def parts_of(gang: GangRequest) -> tuple[int, int] | None:
    """Return how many GPUs a gang takes of each of its nodes, and of how many; None if it can be spread otherwise."""
    if gang.per_node and not gang.per_job:
        return sum(gpu.count for gpu in gang.per_node), gang.nodes_min
    if gang.per_job and gang.most_nodes and (gpus := gang.gpu_count):
        nodes = min(gang.most_nodes, gpus)
        return -(-gpus // nodes), nodes
    return None


def _running(snapshot: Snapshot) -> Iterator[_Run]:
    for job in snapshot.jobs:
        if not job.is_pending and job.allocation is not None and job.start_time is not None:
            gpus = sum(gpu.count for gpu in job.allocation.gpus)
            yield _Run(job.waits_since, job.start_time, snapshot.taken_at, gpus, job.allocation.nodes, job.user)


def _over(ended: Iterable[JobOutcome]) -> Iterator[_Run]:
    for job in ended:
        if job.last_start_time is not None and job.end_time is not None:
            yield _Run(job.waits_since, job.last_start_time, job.end_time, job.gpus, job.nodes, job.user)


class _Nodes:
    """The names of the nodes that jobs have to themselves, found once for equal requests."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._names: dict[tuple[object, ...], set[str]] = {}

    def of(self, job: Job) -> set[str]:
        key = job.partitions, job.gang.gpu_type, job.gang.feature_names, job.gang.excluded_nodes
        if key not in self._names:
            own = np.any([*_own_nodes(job, self._table)], axis=0)
            self._names[key] = {self._table.names[row] for row in np.flatnonzero(own).tolist()}
        return self._names[key]


def _passed(job: Job, runs: Iterable[_Run], nodes: _Nodes, now: float) -> Iterator[_Run]:
    """Yield the runs of others that became eligible after a job, each with its GPUs on nodes of the job."""
    eligible_time, user, names = now - job.queueing_delay_s(now), job.user, nodes.of(job)
    for run in runs:
        if run.eligible_time > eligible_time and run.user != user and run.gpus:
            shared = len(names.intersection(run.nodes))
            if shared:
                yield run._replace(gpus=max(1, run.gpus * shared // len(run.nodes)))


def _starved(job: Job, runs: Sequence[_Run], nodes: _Nodes, now: float, longest_s: float) -> StarvedGang | None:
    passed = list(_passed(job, runs, nodes, now))
    gpus, waited_s = job.gang.gpu_count or 0, job.queueing_delay_s(now)
    # Without a limit, it asks for what it could have had.
    work_gpu_s = gpus * (job.time_limit_s or waited_s)
    held = np.array([(run.start_time, run.end_time, run.gpus) for run in passed]).reshape(-1, 3)
    times, total = _gpu_s_over_time(held)
    if not len(total) or total[-1] < work_gpu_s:
        return None
    first = int(np.searchsorted(total, work_gpu_s))
    around = slice(max(0, first - 1), first + 1)
    reached_time = float(np.interp(work_gpu_s, total[around], times[around]))
    return StarvedGang(
        job_id=job.job_id,
        gpus=gpus,
        eligible_time=now - waited_s,
        since_time=max(now - waited_s + longest_s, reached_time),
        work_gpu_s=work_gpu_s,
        passed_gpu_s=float(total[-1]),
        passed_by=len(passed),
        users=len({run.user for run in passed}),
    )


def _gpu_s_over_time(held: Floats) -> tuple[Floats, Floats]:
    """Return the instants at which runs `(n_runs, 3)` begin or end, and their GPU-time up to each: `(2 n_runs,)`."""
    times, changes = np.concatenate([held[:, 0], held[:, 1]]), np.concatenate([held[:, 2], -held[:, 2]])
    order = np.argsort(times, kind="stable")
    times, gpus = times[order], np.cumsum(changes[order])
    return times, np.concatenate([[0.0], np.cumsum(gpus[:-1] * np.diff(times))])[: len(times)]


def _nodes_at(snapshot: Snapshot, table: NodeTable, job: Job, time: float) -> tuple[str, ...]:
    """Return nodes that a gang fits on at an instant, by the limits of running jobs; none if it can be spread."""
    parts = parts_of(job.gang)
    if parts is None or job.gang.required_nodes:
        return ()
    holdings = holdings_of(snapshot, table)
    freed = without(table, holdings, holdings.end_time <= time)
    idle = gpus_of(freed.gpu_types, freed.gpus_startable, job.gang.gpu_type)
    for nodes in _own_nodes(job, table):
        rows = np.flatnonzero(nodes & (idle >= parts[0]))
        if len(rows) >= parts[1]:
            return tuple(table.names[row] for row in rows[: parts[1]].tolist())
    return ()


def scattered(snapshot: Snapshot) -> tuple[tuple[str, int], ...]:
    """Return the idle GPUs that pending gangs would have if the jobs beside them stood on the fewest nodes, by node.

    Each gang takes parts of one size; those for which no node has room now count. Jobs are packed as if each held one
    GPU. No GPU counts for two gangs.
    """
    waiting = [job for job in competing(snapshot.pending_gpu_jobs, snapshot.taken_at) if not job.reservation]
    line = [(job, parts) for job in waiting if (parts := parts_of(job.gang)) is not None and parts[0] > 1]
    table = node_table(snapshot)
    total, left = table.gpus_total.sum(axis=1), table.gpus_startable.sum(axis=1)
    found = np.zeros_like(left)
    line.sort(key=lambda of: (-(of[0].priority or 0), of[0].submit_time, of[0].job_id))
    for job, (size, count) in line[:_MOST_GANGS]:
        for nodes in _own_nodes(job, table):
            room = np.where(nodes, left, 0) // size
            shared = nodes & (left < total) & (total >= size)
            lacking = count - int(room.sum())
            if not 0 < lacking <= _packed(left[shared], total[shared], size) - room[shared].sum():
                continue
            rest = np.where(shared, left - room * size, 0)
            order = np.lexsort((table.rank, -rest))
            before = np.cumsum(rest[order]) - rest[order]
            taken = np.zeros_like(left)
            taken[order] = np.clip(lacking * size - before, 0, rest[order])
            found += taken
            left -= taken + room * size
            break
    rows = sorted(np.flatnonzero(found).tolist(), key=lambda row: (-found[row], table.names[row]))
    return tuple((table.names[row], int(found[row])) for row in rows)


def _packed(idle: Counts, total: Counts, size: int) -> int:
    """Return how many parts of a size find room on nodes `(n_nodes,)` once their jobs stand on the fewest of them."""
    if not len(idle):
        return 0
    emptied, rest = divmod(int(idle.sum()), int(total.max()))
    return emptied * (int(total.min()) // size) + rest // size


def _own_nodes(job: Job, table: NodeTable) -> Iterator[Flags]:
    """Yield the nodes of each partition of a job that have its features and no GPUs but those that it asks for."""
    own = gpus_of(table.gpu_types, table.gpus_total, job.gang.gpu_type) == table.gpus_total.sum(axis=1)
    for feature in job.gang.feature_names:
        own = own & table.features.get(feature, np.zeros_like(own))
    own[rows_of(table, job.gang.excluded_nodes)] = False
    for name, member in zip(table.partition_names, table.partition_member, strict=True):
        if name in job.partitions:
            yield own & member
