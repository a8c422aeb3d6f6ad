"""Builds the table of the pending GPU jobs that compete for GPUs now, grouped into pools."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.diagnosis import CONTENTION, causes_named
from advisor.domain.forecast import NO_FORECASTS, Forecasts
from advisor.domain.gang import GangRequest, share_of_gpu
from advisor.domain.job import Job, JobState, tasks_of
from advisor.domain.snapshot import Snapshot
from advisor.features.columns import Columns
from advisor.features.nodes import Flags, NodeTable, memory_is_shared_out, sharers_by_partition
from advisor.features.taken import AskedResources, GpuRates, gpus_taken

Value = TypeVar("Value")

ANY_TYPE = -1
# Tier, priority, submit time and id, as `slurms_place` has them.
SlurmsPlace = tuple[int, int, float, int]
# The least share of its limit that a job is counted to use: it has a run time, which others are divided by.
_LEAST_RATIO = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """The pending jobs that are not rows of a pool but can start on its nodes, lowest priority first.

    These are GPU jobs of unknown size, dependent or deferred ones, and those beyond the planner's depth. CPU-only jobs
    are excluded: they take no GPUs.
    """

    priority: NDArray[np.int64]  # (n_others,)
    limit_s: NDArray[np.float64]  # (n_others,), infinite where there is no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRunTimes(Columns):
    """Run times that a plan counts with, in seconds, `(n_jobs,)` each; NaN where no limit and no forecast is known.

    By a model they are its 80 % interval and its mean. By rule `low_s` and `expected_s` are the least share of the
    time limit that jobs are assumed to use, and `high_s` is the limit.
    """

    low_s: NDArray[np.float64]
    expected_s: NDArray[np.float64]
    high_s: NDArray[np.float64]
    by_model: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTable:
    """Competing jobs in the order in which Slurm considers them, row by row.

    A pool is a set of partitions that share GPU nodes, at one priority tier: only jobs of one pool can pass
    each other by priority. `run` holds the assumed run times; the GPU-time of a row is its `width`, as
    `features.taken` counts it, times its run time. `gpu_type` indexes `gpu_types`, `ANY_TYPE` for a gang that takes
    any. Not all jobs of a pool want the same GPUs: `reach` numbers the sets of them that jobs can have.
    """

    jobs: tuple[Job, ...]
    pool: NDArray[np.int32]  # (n_jobs,)
    priority: NDArray[np.int64]  # (n_jobs,)
    wait_s: NDArray[np.float64]  # (n_jobs,)
    gpus: NDArray[np.int32]  # (n_jobs,)
    smallest: NDArray[np.int32]  # (n_jobs,) the least of `gpus` and the job's declared range
    gpu_type: NDArray[np.int32]  # (n_jobs,)
    reach: NDArray[np.intp]  # (n_jobs,)
    reaches_meet: Flags  # (n_reaches, n_reaches), whether two of them have GPUs in common
    limit_s: NDArray[np.float64]  # (n_jobs,), NaN where there is no limit
    run: PlannedRunTimes
    taken: NDArray[np.float64]  # (n_jobs,) whole GPUs that others cannot have, of an array those of one task
    gpu_types: tuple[str, ...]
    pool_gpus: NDArray[np.int32]  # (n_pools, n_types) whole GPUs on usable nodes
    pool_idle: NDArray[np.int32]  # (n_pools, n_types) of them idle
    tasks: NDArray[np.int32]  # (n_jobs,) tasks of an array that wait behind one record, 1 for other jobs
    others: tuple[Others, ...]  # (n_pools,)
    others_wait: NDArray[np.bool_]  # (n_pools,) whether jobs outside a pool's rows wait for GPUs of its nodes
    pool_by_partitions: Mapping[tuple[str, ...], int]

    @property
    def width(self) -> NDArray[np.float64]:
        """The GPUs that each row takes, all waiting tasks of an array together, `(n_jobs,)`."""
        return self.taken * self.tasks

    @property
    def most_gpu_s(self) -> NDArray[np.float64]:
        """The GPU-time that each row takes at most, `(n_jobs,)`: up to its limit, or without one by its forecast."""
        return self.width * np.where(np.isfinite(self.limit_s), self.limit_s, self.run.high_s)

    @property
    def expected_gpu_s(self) -> NDArray[np.float64]:
        """The GPU-time that each row is expected to take, `(n_jobs,)`."""
        return self.width * self.run.expected_s

    @property
    def pool_capacity(self) -> NDArray[np.float64]:
        """The GPUs of each pool and type as whole ones, `(n_pools, n_types)`: a slice is its share."""
        shares = np.array([share_of_gpu(gpu_type) for gpu_type in self.gpu_types], dtype=np.float64)
        return np.asarray(self.pool_gpus * shares, dtype=np.float64)

    def rows_of(self, pool: int) -> NDArray[np.intp]:
        """Return the rows of a pool, in order."""
        return np.flatnonzero(self.pool == pool)

    def rows_by_pool(self) -> Iterator[NDArray[np.intp]]:
        """Yield the rows of each pool that has any, in order."""
        for pool in range(len(self.pool_gpus)):
            rows = self.rows_of(pool)
            if len(rows):
                yield rows

    def longest_s(self, row: int) -> float:
        """Return the time limit of a row, in seconds; infinity without one."""
        limit_s = float(self.limit_s[row])
        return limit_s if np.isfinite(limit_s) else np.inf

    def by_priority(self, priority: NDArray[np.int64]) -> "QueueTable":
        """Return the table with other priorities `(n_jobs,)`, in the order in which Slurm then considers the jobs."""
        submit_time = np.array([job.submit_time for job in self.jobs])
        job_id = np.array([job.job_id for job in self.jobs], dtype=np.int64)
        order = by_place(priority, submit_time, job_id)
        of_rows = ("pool", "wait_s", "gpus", "smallest", "gpu_type", "reach", "limit_s", "taken", "tasks")
        return replace(
            self,
            jobs=tuple(self.jobs[row] for row in order),
            priority=priority[order],
            run=self.run.take(order),
            **{name: getattr(self, name)[order] for name in of_rows},
        )


def competes_now(job: Job, now: float) -> bool:
    """Return whether a pending job asks for whole GPUs and can start as soon as there are enough.

    A job that Slurm holds back for another reason, such as a limit of its account, does not compete; nor does
    one with an unknown reason.
    """
    return job.state is JobState.PENDING and job.gang.wants_gpus and bool(competing((job,), now))


def competing(jobs: Sequence[Job], now: float) -> list[Job]:
    """Return the pending jobs that can start as soon as there are enough resources."""
    # Many jobs share few reasons.
    contention = {reason for reason in {job.reason for job in jobs} if causes_named(reason) <= CONTENTION}
    return [
        job
        for job in jobs
        if not job.held
        and not job.dependency
        and not (job.eligible_time is not None and job.eligible_time > now)
        and job.reason in contention
    ]


def jobs_within_depth(snapshot: Snapshot) -> frozenset[int]:
    """Return the pending jobs that a pass of backfill considers: the first in Slurm's order, up to its depth.

    Jobs without GPUs count, an array counts once.
    """
    line = [job for job in competing(snapshot.pending, snapshot.taken_at) if job.priority]
    tiers = tier_by_partition(snapshot)
    tier = np.array([highest_tier(job, tiers) for job in line])
    order = slurms_order(line)
    order = order[np.argsort(-tier[order], kind="stable")] if line else order
    return frozenset(line[place].job_id for place in order[: snapshot.config.backfill_depth].tolist())


def tier_by_partition(snapshot: Snapshot) -> dict[str, int]:
    """Map partitions to their priority tiers."""
    return {partition.name: partition.priority_tier for partition in snapshot.partitions}


def highest_tier(job: Job, tiers: Mapping[str, int]) -> int:
    """Return the highest priority tier of a job's partitions, 0 where none is known."""
    return max((tiers.get(name, 0) for name in job.partitions), default=0)


def expected_limit_s(job: Job, snapshot: Snapshot) -> float | None:
    """Return the time limit that binds a job: its own, else its partitions', None where there is none."""
    if job.time_limit_s is not None:
        return job.time_limit_s
    limits = [
        partition.max_time_s
        for name in job.partitions
        if (partition := snapshot.partitions_by_name.get(name)) is not None and partition.max_time_s is not None
    ]
    return max(limits, default=None)


def limits_s(jobs: Iterable[Job], snapshot: Snapshot) -> list[float | None]:
    """Return the time limit that binds each job, None where there is none."""
    return [
        expected_limit_s(job, snapshot) if (limit_s := job.time_limit_s) is None else limit_s  # most have one
        for job in jobs
    ]


def slurms_order(jobs: Sequence[Job]) -> NDArray[np.intp]:
    """Return the places of jobs whose priorities are known in the order in which Slurm considers them."""
    # In the order of the snapshot, which is that of memory: access by rank takes far longer.
    job_id = np.array([job.job_id for job in jobs], dtype=np.int64)
    submit_time = np.array([job.submit_time for job in jobs], dtype=np.float64)
    priority = np.array([job.priority for job in jobs], dtype=np.int64)
    return by_place(priority, submit_time, job_id)


def by_place(
    priority: NDArray[np.int64], submit_time: NDArray[np.float64], job_id: NDArray[np.int64]
) -> NDArray[np.intp]:
    """Return the rows of jobs in one partition tier, `(n_jobs,)`, in the order of `slurms_place`."""
    return np.lexsort((job_id, submit_time, -priority))


def slurms_place(job: Job, tier: int) -> SlurmsPlace:
    """Return the place of a job in Slurm's order; the lowest is considered first.

    A higher tier of its partitions decides, then priority, submit time and id.
    """
    return -tier, -(job.priority or 0), job.submit_time, job.job_id


def of_gangs(jobs: Sequence[Job], value: Callable[[GangRequest], Value]) -> list[Value]:
    """Return a value of the request of each job, computed once for a request that jobs share."""
    shared = {id(job.gang): job.gang for job in jobs}
    value_by_gang = {number: value(gang) for number, gang in shared.items()}
    return [value_by_gang[id(job.gang)] for job in jobs]


def gpu_counts(jobs: Sequence[Job]) -> list[int | None]:
    """Return the whole GPUs that each job needs at least."""
    return of_gangs(jobs, lambda gang: gang.gpu_count)


def gpu_shares(jobs: Sequence[Job]) -> NDArray[np.float64]:
    """Return the share of a whole GPU that each GPU of a job is, `(n_jobs,)`: less than 1 for slices."""
    return np.array(of_gangs(jobs, lambda gang: gang.gpu_share), dtype=np.float64)


def gpu_types(jobs: Sequence[Job]) -> list[str | None]:
    """Return the one GPU type of each job, None for any or several."""
    return of_gangs(jobs, lambda gang: gang.gpu_type)


def run_times(
    jobs: Sequence[Job], limit_s: NDArray[np.float64], forecasts: Forecasts, rule_ratio: float
) -> PlannedRunTimes:
    """Return the run times to count with: forecasts where there are, else shares of the limits `(n_jobs,)`.

    `rule_ratio` is the share of its limit that a job is assumed to use where nothing is forecast at all. Beside jobs
    with forecasts, one without is taken to use the share of its limit that they use in the mean.
    """
    forecast_runs = [forecasts.of(job.job_id).run_time for job in jobs]
    by_model = np.array([run is not None for run in forecast_runs], dtype=np.bool_)
    rows = [(run.interval_s.low, run.mean_s, run.interval_s.high) if run else (np.nan,) * 3 for run in forecast_runs]
    low_s, expected_s, high_s = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    limited = by_model & (limit_s > 0.0)
    used_ratio = np.clip(expected_s[limited] / limit_s[limited], _LEAST_RATIO, 1.0)
    ratio = float(np.mean(used_ratio)) if limited.any() else rule_ratio
    return PlannedRunTimes(
        low_s=np.where(by_model, low_s, limit_s * min(rule_ratio, ratio)),
        expected_s=np.where(by_model, expected_s, limit_s * ratio),
        high_s=np.where(by_model, high_s, limit_s),
        by_model=by_model,
    )


def smallest_size(job: Job) -> int:
    """Return the fewest whole GPUs that a job can be given: its own count, or the low end of its range.

    Only plans that set sizes count with it: a job starts with what it asks for until its size is set.
    """
    gpus = job.gang.gpu_count or 0
    return gpus if job.hints.gpus is None else min(gpus, job.hints.gpus.low)


def queue_table(
    snapshot: Snapshot, table: NodeTable, depth: int, forecasts: Forecasts = NO_FORECASTS, *, rule_ratio: float = 1.0
) -> QueueTable:
    """Build the table of the jobs that compete for GPUs in a snapshot, the first `depth` of each pool.

    `rule_ratio` is the share of its limit that a job without a forecast is assumed to use.
    """
    now = snapshot.taken_at
    pools = _Pools(snapshot, table)
    jobs, pool_of_row = _line(snapshot, pools, depth)
    type_index: dict[str | None, int] = {name: index for index, name in enumerate(table.gpu_types)}
    limit_s = np.array(limits_s(jobs, snapshot), dtype=np.float64)  # numpy reads None as NaN
    gpus, types = gpu_counts(jobs), gpu_types(jobs)
    smallest = np.array(
        [count if job.hints.gpus is None else smallest_size(job) for job, count in zip(jobs, gpus, strict=True)],
        dtype=np.int32,
    )
    tasks = np.array([1 if job.array is None else tasks_of(job) for job in jobs], dtype=np.int32)
    others, others_wait = _outside(snapshot, pools, jobs)
    reach, reaches_meet = _reaches(table, [(job.partitions, name) for job, name in zip(jobs, types, strict=True)])
    return QueueTable(
        jobs=tuple(jobs),
        pool=np.array(pool_of_row, dtype=np.int32),
        priority=np.array([job.priority for job in jobs], dtype=np.int64),
        wait_s=np.maximum(0.0, now - np.array([job.waits_since for job in jobs], dtype=np.float64)),
        gpus=np.array(gpus, dtype=np.int32),
        smallest=smallest,
        gpu_type=np.array([type_index.get(name, ANY_TYPE) for name in types], dtype=np.int32),
        reach=reach,
        reaches_meet=reaches_meet,
        limit_s=limit_s,
        run=run_times(jobs, limit_s, forecasts, rule_ratio),
        taken=_taken(snapshot, table, pools, jobs, pool_of_row),
        gpu_types=table.gpu_types,
        tasks=tasks,
        others=others,
        others_wait=others_wait,
        pool_gpus=pools.totals,
        pool_idle=pools.idle,
        pool_by_partitions={
            partitions: pool
            for partitions in sorted({job.partitions for job in snapshot.jobs})
            if (pool := pools.of(partitions)) is not None
        },
    )


def gpus_taken_by(jobs: Sequence[Job], snapshot: Snapshot, table: NodeTable) -> NDArray[np.float64]:
    """Return the whole GPUs that jobs of a snapshot take, `(n_jobs,)`; 0 for jobs of partitions without GPU nodes."""
    pools = _Pools(snapshot, table)
    pool_of_job = [pools.of(job.partitions) for job in jobs]
    known = [place for place, pool in enumerate(pool_of_job) if pool is not None]
    taken = np.zeros(len(jobs), dtype=np.float64)
    if known:
        pool_of_row = [pool for pool in pool_of_job if pool is not None]
        taken[known] = _taken(snapshot, table, pools, [jobs[place] for place in known], pool_of_row)
    return taken


def _taken(
    snapshot: Snapshot, table: NodeTable, pools: "_Pools", jobs: Sequence[Job], pool_of_row: Sequence[int]
) -> NDArray[np.float64]:
    """Return the whole GPUs that each job takes, `(n_jobs,)`."""
    place_by_id = {id(job.gang): place for place, job in enumerate(jobs)}
    number_by_id = {shared: number for number, shared in enumerate(place_by_id)}
    gangs = [jobs[place].gang for place in place_by_id.values()]
    of_job = np.array([number_by_id[id(job.gang)] for job in jobs], dtype=np.intp)
    counts = [gang.gpu_count or 0 for gang in gangs]
    column = {name: number for number, name in enumerate(table.gpu_types)}
    any_type = len(table.gpu_types)
    rows = [
        (
            count * gang.gpu_share,
            gang.nodes_min,
            max(gang.cpus, (gang.cpus_per_gpu or 0) * count, gang.cpus_per_node * gang.nodes_min),
            gang.memory_mib_per_node or 0,
            gang.exclusive or bool(gang.only_beside),
            column.get(gang.gpu_type or "", any_type),
        )
        for gang, count in zip(gangs, counts, strict=True)
    ]
    gpus, nodes, cpus, memory_mib, whole, gpu_type = np.array(rows, dtype=np.float64).reshape(-1, 6)[of_job].T
    whole_by_partition = {partition.name for partition in snapshot.partitions if partition.gives_whole_nodes}
    gets_whole = np.zeros(len(jobs), dtype=np.bool_)
    if whole_by_partition:
        gets_whole[:] = [not whole_by_partition.isdisjoint(job.partitions) for job in jobs]
    rates = pools.rates(table, counts_memory=memory_is_shared_out(snapshot.config))
    sets = np.array(pool_of_row, dtype=np.intp) * (any_type + 1) + gpu_type.astype(np.intp)
    asked = AskedResources(gpus=gpus, nodes=nodes, cpus=cpus, memory_mib=memory_mib, whole=(whole > 0.0) | gets_whole)
    return gpus_taken(asked, rates.take(sets))


def _reaches(table: NodeTable, kinds: Sequence[tuple[tuple[str, ...], str | None]]) -> tuple[NDArray[np.intp], Flags]:
    """Return which set of GPUs each job can have, by its partitions and type, `(n_jobs,)`, and which sets meet."""
    number_by_kind: dict[tuple[tuple[str, ...], str | None], int] = {}
    reach = np.array([number_by_kind.setdefault(kind, len(number_by_kind)) for kind in kinds], dtype=np.intp)
    has_gpus = table.gpus_total > 0
    gpus = np.zeros((len(number_by_kind), *has_gpus.shape), dtype=np.bool_)
    for (partitions, gpu_type), number in number_by_kind.items():
        of_job = [name in partitions for name in table.partition_names]
        nodes = np.asarray(table.partition_member[of_job].any(axis=0))
        types = np.array([gpu_type in (None, name) for name in table.gpu_types], dtype=np.bool_)
        gpus[number] = has_gpus & nodes[:, None] & types
    flat = gpus.reshape(len(gpus), has_gpus.size).astype(np.float32)
    return reach, np.asarray(flat @ flat.T > 0.0)


def _line(snapshot: Snapshot, pools: "_Pools", depth: int) -> tuple[list[Job], list[int]]:
    """Return the first `depth` competing jobs of each pool in Slurm's order, and the pool of each."""
    line = [job for job in competing(snapshot.pending_gpu_jobs, snapshot.taken_at) if job.priority]
    pool_of, gpus, types = [pools.of(job.partitions) for job in line], gpu_counts(line), gpu_types(line)
    kept = Counter[int]()
    jobs: list[Job] = []
    pool_of_row: list[int] = []
    for place in slurms_order(line).tolist():
        pool = pool_of[place]
        if pool is None or kept[pool] >= depth:
            continue
        # A gang larger than its pool can never start.
        if 0 < (gpus[place] or 0) <= pools.capacity(pool, types[place]):
            kept[pool] += 1
            jobs.append(line[place])
            pool_of_row.append(pool)
    return jobs, pool_of_row


def _outside(snapshot: Snapshot, pools: "_Pools", jobs: list[Job]) -> tuple[tuple[Others, ...], NDArray[np.bool_]]:
    """Return, for each pool, the pending GPU jobs that are not its rows, and whether any waits for its nodes."""
    shown = {job.job_id for job in jobs}
    busy = {pool for job in jobs if (pool := pools.of(job.partitions)) is not None}
    waiting: set[int] = set()
    levels: list[list[tuple[int, float]]] = [[] for _ in pools.group]
    for job in snapshot.pending:
        if job.held or job.job_id in shown:
            continue
        gang = job.gang
        # It can take GPUs that cannot be counted: parts of them, or GPUs that the reader could not see.
        parts = bool(gang.shares) or not gang.gpus_known
        pool = pools.of(job.partitions) if parts or gang.wants_gpus else None
        if pool is None:
            continue
        if pool not in waiting and (parts or competes_now(job, snapshot.taken_at)):
            waiting.add(pool)
        if job.priority:
            limit_s = expected_limit_s(job, snapshot) if job.time_limit_s is None else job.time_limit_s
            levels[pool].append((job.priority, np.inf if limit_s is None else limit_s))
    others = []
    for unsorted in levels:
        rows = np.array(unsorted, dtype=np.float64).reshape(-1, 2)
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        others.append(Others(priority=rows[:, 0].astype(np.int64), limit_s=rows[:, 1]))
    wait = np.array(
        [
            any(pools.group[other] == group for other in waiting)
            or any(other != pool and pools.group[other] == group for other in busy)
            for pool, group in enumerate(pools.group)
        ],
        dtype=np.bool_,
    )
    return tuple(others), wait


class _Pools:
    """Partitions joined where they share GPU nodes, split by priority tier."""

    def __init__(self, snapshot: Snapshot, table: NodeTable) -> None:
        has_gpus = table.gpus_total.any(axis=1)
        members = dict(zip(table.partition_names, table.partition_member & has_gpus, strict=True))
        groups = joined({name: np.flatnonzero(rows).tolist() for name, rows in members.items()})
        keys = {
            partition.name: (groups[partition.name], -partition.priority_tier)
            for partition in snapshot.partitions
            if partition.name in groups
        }
        index = {key: number for number, key in enumerate(sorted(set(keys.values())))}
        self.group = np.array([group for group, _ in sorted(set(keys.values()))], dtype=np.int32)
        self._pool_by_partition = {name: index[key] for name, key in keys.items()}
        self._pool_by_partitions: dict[tuple[str, ...], int | None] = {}
        sharers = sharers_by_partition(snapshot.partitions)
        self._member: Flags = np.zeros((len(index), len(table.names)), dtype=np.bool_)
        self._shares_cpus = np.zeros(len(index), dtype=np.bool_)
        open_rows = np.zeros_like(self._member)
        for partition in snapshot.partitions:
            if partition.name not in keys:
                continue
            pool = self._pool_by_partition[partition.name]
            self._member[pool] |= members[partition.name]
            self._shares_cpus[pool] |= partition.name in sharers
            if partition.is_up:
                open_rows[pool] |= members[partition.name] & table.usable
        shape = (len(index), len(table.gpu_types))
        self.totals = (open_rows.astype(np.int32) @ table.gpus_total).astype(np.int32).reshape(shape)
        self.idle = (open_rows.astype(np.int32) @ table.gpus_startable).astype(np.int32).reshape(shape)
        self._capacities: list[dict[str | None, int]] = [
            {None: sum(counts), **dict(zip(table.gpu_types, counts, strict=True))} for counts in self.totals.tolist()
        ]

    def rates(self, table: NodeTable, *, counts_memory: bool) -> GpuRates:
        """Return the GPUs by node, CPU and memory of each pool, for each GPU type and last for any.

        CPUs count nothing where several jobs share each of them.
        """
        shares = np.array([share_of_gpu(gpu_type) for gpu_type in table.gpu_types], dtype=np.float64)
        has_type = np.vstack([(table.gpus_total > 0).T, table.gpus_total.any(axis=1)])
        member = (self._member[:, None, :] & has_type[None, :, :]).reshape(
            len(self._member) * len(has_type), len(table.names)
        )
        rates = GpuRates.of(
            member,
            table.gpus_total @ shares,
            table.cpus_total.astype(np.float64),
            table.memory_total_mib.astype(np.float64) * counts_memory,
        )
        of_shared = np.repeat(self._shares_cpus, len(has_type))
        return replace(rates, per_cpu=np.where(of_shared, 0.0, rates.per_cpu))

    def capacity(self, pool: int, gpu_type: str | None) -> int:
        """Return the number of GPUs in service in a pool, of the type that a job asks for."""
        return self._capacities[pool].get(gpu_type, 0)

    def of(self, partitions: tuple[str, ...]) -> int | None:
        """Return the pool of the first of `partitions` that has GPUs, None where none has."""
        try:
            return self._pool_by_partitions[partitions]
        except KeyError:
            known = (self._pool_by_partition.get(name) for name in partitions)
            first = self._pool_by_partitions[partitions] = next((pool for pool in known if pool is not None), None)
            return first


def joined(rows_by_partition: Mapping[str, Iterable[int]]) -> dict[str, int]:
    """Number the groups of partitions that share nodes; partitions without nodes are absent."""
    group_by_row: dict[int, int] = {}
    members: list[list[str]] = []
    rows_of: list[set[int]] = []
    for name in sorted(rows_by_partition):
        rows = set(rows_by_partition[name])
        if not rows:
            continue
        touching = sorted({group_by_row[row] for row in rows if row in group_by_row})
        target = touching[0] if touching else len(members)
        if not touching:
            members.append([])
            rows_of.append(set())
        for other in touching[1:]:
            members[target] += members[other]
            rows_of[target] |= rows_of[other]
            members[other], rows_of[other] = [], set()
        members[target].append(name)
        rows_of[target] |= rows
        group_by_row.update(dict.fromkeys(rows_of[target], target))
    groups = [names for names in members if names]
    return {name: number for number, names in enumerate(groups) for name in names}
