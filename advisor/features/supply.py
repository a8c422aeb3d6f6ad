"""Computes when GPUs come free, by time limits or by forecasts."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Forecasts
from advisor.domain.job import JobState
from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import UNTYPED
from advisor.features.queue import ANY_TYPE, QueueTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """The GPUs that running jobs release, in order of time; seconds count from the snapshot."""

    after_s: NDArray[np.float64]  # (n_releases,)
    pool: NDArray[np.int32]  # (n_releases,)
    gpu_type: NDArray[np.int32]  # (n_releases,)
    gpus: NDArray[np.int32]  # (n_releases,)


def releases(snapshot: Snapshot, queue: QueueTable, expected_s: Mapping[int, float] | None = None) -> Releases:
    """Collect the releases of the running jobs whose GPUs are known: at their limits, or when they are expected.

    `expected_s` maps job ids to the time that each is expected to run on; a job that is absent releases nothing.
    """
    after_s = _by_limits_s(snapshot) if expected_s is None else expected_s
    type_index: dict[str | None, int] = {name: index for index, name in enumerate(queue.gpu_types)}
    rows = sorted(
        (after_s[job.job_id], job.job_id, pool, type_index[gpus.gpu_type or UNTYPED], gpus.count)
        for job in snapshot.jobs
        if job.allocation is not None and job.state is JobState.RUNNING and job.job_id in after_s
        for pool in [queue.pool_by_partitions.get(job.partitions)]
        if pool is not None
        for gpus in job.allocation.gpus
        if (gpus.gpu_type or UNTYPED) in type_index
    )
    return Releases(
        after_s=np.array([row[0] for row in rows], dtype=np.float64),
        pool=np.array([row[2] for row in rows], dtype=np.int32),
        gpu_type=np.array([row[3] for row in rows], dtype=np.int32),
        gpus=np.array([row[4] for row in rows], dtype=np.int32),
    )


def _by_limits_s(snapshot: Snapshot) -> dict[int, float]:
    """Map running jobs to the time left under their limits, in seconds."""
    return {
        job.job_id: max(0.0, job.end_time - snapshot.taken_at)
        for job in snapshot.jobs
        if job.end_time is not None and job.state is JobState.RUNNING
    }


def remaining_s(snapshot: Snapshot, forecasts: Forecasts, rule_ratio: float) -> dict[int, float]:
    """Map running jobs to their expected time left, the median of the forecast if there is one.

    A job without a forecast is taken to use `rule_ratio` of what its limit leaves.
    """
    seconds_by_job = {}
    for job_id, left_s in _by_limits_s(snapshot).items():
        run_time, start_time = forecasts.of(job_id).run_time, snapshot.jobs_by_id[job_id].start_time
        if run_time is None or start_time is None:
            seconds_by_job[job_id] = left_s * rule_ratio
        else:
            seconds_by_job[job_id] = min(left_s, max(0.0, start_time + run_time.interval_s.median - snapshot.taken_at))
    return seconds_by_job


def latest_starts_s(
    queue: QueueTable, freed: Releases, rows: NDArray[np.intp], gpus: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Bound when each job of one pool gets its GPUs, if those ahead of it go first and no other job arrives.

    `rows` `(n_rows,)` are queue rows of one pool in the order in which they are served, `gpus` `(n_rows,)` what
    each of them takes: `queue.gpus`, or `queue.smallest` for a bound that no resize changes. The result
    `(n_rows,)` counts seconds from the snapshot, 0 where idle GPUs suffice and infinity where running jobs do not free
    enough. GPUs of a type count as interchangeable, jobs that take any type count against every type.
    """
    starts = np.zeros(len(rows), dtype=np.float64)
    types = queue.gpu_type[rows]
    for gpu_type in sorted(set(types.tolist())):
        pool = int(queue.pool[rows[0]])
        of_type = types == gpu_type
        demand = np.where(_meets(types, gpu_type), gpus, 0).cumsum(dtype=np.int64)
        starts[of_type] = _times_for(freed, pool, gpu_type, queue.pool_idle[pool], demand[of_type])
    return starts


def backfilled(queue: QueueTable, freed: Releases, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return a mask of the jobs of one pool that backfill can start regardless of the jobs ahead, `(n_rows,)`.

    Such a job fits the idle GPUs and ends, by its time limit, before the largest gang that wants the same GPUs
    could start. Does not depend on the order of `rows`.
    """
    fits = np.zeros(len(rows), dtype=np.bool_)
    types, gpus = queue.gpu_type[rows], queue.gpus[rows].astype(np.int64)
    for gpu_type in sorted(set(types.tolist())):
        of_type = types == gpu_type
        pool = int(queue.pool[rows[0]])
        largest = gpus[_meets(types, gpu_type)].max(keepdims=True)
        shadow_s = _times_for(freed, pool, gpu_type, queue.pool_idle[pool], largest)
        now = _times_for(freed, pool, gpu_type, queue.pool_idle[pool], gpus) == 0.0
        fits |= of_type & now & (queue.limit_s[rows] <= shadow_s)
    return fits


def wait_for_s(freed: Releases, pool: int, gpu_type: int, gpus: int, idle: NDArray[np.int64]) -> float:
    """Return when `idle` `(n_types,)` and what is freed first make up `gpus` of one type; infinity for never."""
    return float(_times_for(freed, pool, gpu_type, idle, np.array([gpus], dtype=np.int64))[0])


def _meets(types: NDArray[np.int32], gpu_type: int) -> NDArray[np.bool_]:
    """Return a mask of the jobs that compete for GPUs of `gpu_type`."""
    if gpu_type == ANY_TYPE:
        return np.ones(len(types), dtype=np.bool_)
    meets: NDArray[np.bool_] = (types == gpu_type) | (types == ANY_TYPE)
    return meets


def _times_for(
    freed: Releases, pool: int, gpu_type: int, idle: NDArray[np.integer], demand: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return when `idle` `(n_types,)` and released GPUs first cover each demand, infinity for never."""
    mine = freed.pool == pool
    left = int(idle.sum())
    if gpu_type != ANY_TYPE:
        mine &= freed.gpu_type == gpu_type
        left = int(idle[gpu_type])
    supply = np.r_[left, left + freed.gpus[mine].cumsum(dtype=np.int64)]
    times = np.r_[0.0, freed.after_s[mine], np.inf]
    covered: NDArray[np.float64] = times[np.searchsorted(supply, demand, side="left")]
    return covered
