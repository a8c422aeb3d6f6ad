"""Proposes soft limits: backfill then plans a job with its forecast run time, given as TimeMin.

Users ask for far more time than they use, and backfill starts a job in a hole only if its limit fits there. Where the
site takes TimeMin for a soft limit, backfill plans with it, and the limit itself stays. The soft limit is the high end
of the forecast, meant as one that one job in ten outlives. For such a job Slurm plans half of what its limit leaves,
again and again, and jobs planned behind it slip by that much.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Reason, SetTimeMin
from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Interval
from advisor.domain.job import Job
from advisor.domain.plan import Expected, Facts, Kind, Recommendation, clipped
from advisor.domain.site import SiteConfig
from advisor.domain.units import MINUTE_S
from advisor.features.queue import ANY_TYPE, QueueTable
from advisor.features.supply import Releases, backfilled, latest_starts_s
from advisor.planning.case import Case
from advisor.settings import PlanningSettings

# What lies above an 80 % interval.
CHANCE_LONGER = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsShorterThanLimit(Facts):
    """The forecast run time of a job beside its limits, and what it may cost others if it runs longer."""

    reason = Reason.RUNS_SHORTER_THAN_LIMIT

    time_limit_s: float
    soft_limit_s: float
    run_time_s_low: float
    run_time_s_median: float
    run_time_s_high: float
    chance_longer: float
    chance_others_delayed: float
    others_delayed_s_max: float
    expected_wait_s_max: float


def recommendations(case: Case, so_far: Sequence[Recommendation] = ()) -> Iterator[Recommendation]:
    """Propose soft limits, best placed jobs first, no more than the limits leave room for.

    A job that gets its GPUs at once anyway is left alone, and one whose user set TimeMin.
    """
    queue, done = case.queue_after(so_far), case.done(so_far)
    snapshot, forecasts, settings = case.snapshot, case.forecasts, case.settings
    rows = np.arange(len(queue.jobs))
    soft_limits_s = {
        row: soft_s
        for row in rows.tolist()
        if (job := queue.jobs[row]).job_id not in done
        and (run_time := forecasts.of(job.job_id).run_time) is not None
        and (soft_s := soft_limit_s(job, run_time.interval_s, snapshot.config, settings)) is not None
    }
    if not soft_limits_s:
        return
    freed = case.freed_by_limits
    waits_s = dict(zip(rows.tolist(), _waits_s(queue, freed, rows).tolist(), strict=True))
    left = case.limits.max_changes - len(so_far)
    likely_s: Mapping[int, float] = {}
    for row in _fitting(queue, freed, rows, soft_limits_s):
        job, run_time = queue.jobs[row], forecasts.of(queue.jobs[row].job_id).run_time
        if left > 0 and run_time is not None and waits_s[row] > 0.0 and waits_s[row] >= settings.min_saving_s:
            left -= 1
            likely_s = likely_s or _likely_waits_s(case, queue, rows)
            wait_s = Interval(low=0.0, median=clipped(likely_s[row], 0.0, waits_s[row]), high=waits_s[row])
            yield _recommendation(job, run_time.interval_s, soft_limits_s[row], wait_s, snapshot.config)


def _fitting(
    queue: QueueTable, freed: Releases, rows: NDArray[np.intp], soft_limits_s: Mapping[int, float]
) -> Iterator[int]:
    """Yield the rows that backfill can start now with their soft limits; they stay in their order.

    A soft limit on any other job lets Slurm plan it earlier at the cost of those that would have started before it,
    which helps large gangs and raises the mean JCT.
    """
    planned_s = queue.limit_s.copy()
    planned_s[list(soft_limits_s)] = list(soft_limits_s.values())
    planned = replace(queue, limit_s=planned_s)
    for pool in sorted(set(queue.pool[rows].tolist())):
        of_pool = rows[queue.pool[rows] == pool]
        fits = backfilled(planned, freed, of_pool)
        yield from (row for row in of_pool[fits].tolist() if row in soft_limits_s)


def soft_limit_s(job: Job, run_time_s: Interval, config: SiteConfig, settings: PlanningSettings) -> float | None:
    """Return the soft limit of a job in whole minutes; None where it is not worth one, or its user chose one."""
    if job.time_limit_s is None or job.time_min_s is not None:
        return None
    # Below its resolution backfill does not tell run times apart.
    soft_s = math.ceil(max(run_time_s.high, config.backfill_resolution_s, MINUTE_S) / MINUTE_S) * MINUTE_S
    short_enough = soft_s <= settings.soft_limit_ratio_high * job.time_limit_s
    return soft_s if short_enough and job.time_limit_s - soft_s >= settings.min_saving_s else None


def _waits_s(queue: QueueTable, freed: Releases, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return how long each job can wait if those before it use their limits `(n_rows,)`; 0 where it starts at once."""
    waits_s = np.zeros(len(rows))
    for pool in sorted(set(queue.pool[rows].tolist())):
        mine = np.flatnonzero(queue.pool[rows] == pool)
        of_pool = rows[mine]
        starts_s = latest_starts_s(queue, freed, of_pool, queue.gpus[of_pool])
        # Ends of jobs that have not started are unknown; behind those the wait comes from the work in line.
        known = np.isfinite(starts_s)
        starts_s[~known] = _by_work_s(queue, freed, of_pool)[~known]
        starts_s[backfilled(queue, freed, of_pool)] = 0.0
        waits_s[mine] = starts_s
    return waits_s


def _likely_waits_s(case: Case, queue: QueueTable, rows: NDArray[np.intp]) -> Mapping[int, float]:
    """Map rows to how long each job should wait if jobs run for as long as they are expected to."""
    expected = replace(queue, limit_s=queue.run.expected_s)
    return dict(zip(rows.tolist(), _waits_s(expected, case.freed, rows).tolist(), strict=True))


def _by_work_s(queue: QueueTable, freed: Releases, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the GPU-time before each job of one pool over the GPUs there are for it `(n_rows,)`.

    Jobs without a time limit count for nothing.
    """
    wait_s = np.zeros(len(rows))
    pool, types = int(queue.pool[rows[0]]), queue.gpu_type[rows]
    work = np.nan_to_num(queue.width[rows] * queue.limit_s[rows])
    held = freed.after_s * freed.gpus * (freed.pool == pool)
    for gpu_type in sorted(set(types.tolist())):
        of_any = gpu_type == ANY_TYPE
        meets = (types == gpu_type) | (types == ANY_TYPE) | of_any
        running = held[(freed.gpu_type == gpu_type) | of_any].sum()
        gpus = queue.pool_capacity[pool].sum() if of_any else queue.pool_capacity[pool, gpu_type]
        ahead = np.where(meets, work, 0.0).cumsum() - work
        wait_s[types == gpu_type] = ((running + ahead) / gpus)[types == gpu_type]
    return wait_s


def _recommendation(
    job: Job, run_time_s: Interval, soft_s: float, wait_s: Interval, config: SiteConfig
) -> Recommendation:
    limit_s = job.time_limit_s or soft_s
    return Recommendation(
        kind=Kind.REORDER,
        action=SetTimeMin(job_id=job.job_id, before=job.time_min_s, after=soft_s),
        facts=RunsShorterThanLimit(
            time_limit_s=limit_s,
            soft_limit_s=soft_s,
            run_time_s_low=run_time_s.low,
            run_time_s_median=run_time_s.median,
            run_time_s_high=run_time_s.high,
            chance_longer=CHANCE_LONGER,
            chance_others_delayed=CHANCE_LONGER if config.traits.soft_limits_outlast_start else 1.0,
            others_delayed_s_max=limit_s - soft_s,
            expected_wait_s_max=wait_s.high,
        ),
        expected=Expected(
            saved_s=wait_s.median,
            saved_s_low=wait_s.low,
            saved_s_high=wait_s.high,
            jobs_helped=1,
            added_delay_max_s=0.0,
        ),
    )
