"""Proposes to restart running elastic jobs with more GPUs: the stop, and the size while Slurm holds the job.

Slurm cannot scale a running job. One that declares a checkpoint is requeued for idle GPUs that no pending job can take,
where its run time is forecast; the next round lets it ask for them. One job of a pool restarts at a time, so that no
GPU is meant for two. If the GPUs are gone it keeps its size, or gets it back once it has waited for too long.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever, Reason, Requeue, SetGpus
from advisor.domain.facts import UNPUBLISHED, Facts
from advisor.domain.job import GpuRange, Job
from advisor.domain.lease import restarting
from advisor.domain.plan import Expected, Kind, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.features.board import board_of
from advisor.features.capacity import Fitter
from advisor.features.policy import best_of
from advisor.features.queue import ANY_TYPE, QueueTable, queue_table
from advisor.features.steps import WINDOW, Choose, Steps, Supply, elastic_jobs, ladder, step_options, supply_of
from advisor.planning.case import Case
from advisor.planning.earliest import without
from advisor.planning.elastic import scaling_of
from advisor.planning.preemption import REQUEUE_HOLD_S, lost_work_s
from advisor.planning.restarts import GROWTH_LEASE_S, Restart, by_marginal_gain, restarts
from advisor.planning.sizing import fits_best, options, resized

# What Slurm shows of a job that waits for GPUs alone.
_WAITS_FOR_GPUS: Final = "Resources"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartsLarger(Facts):
    """The sizes of a running job before and after a restart, what is left of its run time, and what it gains and costs.

    The exponent is None where its speeds are forecast.
    """

    reason = Reason.RESTART_WITH_MORE_GPUS

    gpus: int
    gpus_after: int
    remaining_s: float
    saved_s: float
    cost_s: float
    lost_work_s: float
    declared: GpuRange | None = field(metadata=UNPUBLISHED)
    scaling_exponent: float | None = field(metadata=UNPUBLISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowsForRestart(Facts):
    """The size of a job that was stopped to grow, the one that it gets now, and the one that it was stopped for."""

    reason = Reason.SIZE_OF_RESTART

    gpus: int
    gpus_after: int
    gpus_meant: int
    lease_s: float


def recommendations(case: Case, so_far: Sequence[Recommendation] = ()) -> Iterator[Recommendation]:
    """Propose sizes for the jobs that were stopped to grow, then the next job of each pool to stop."""
    changed = {change.job_id for change in so_far}
    for job_id, gpus in sorted(case.permits.restarting.items()):
        if job_id not in changed:
            yield from _sized(case, case.snapshot.jobs_by_id[job_id], gpus)
    if case.permits.restartable and Lever.CHECKPOINT_REQUEUE not in case.missing:
        yield from _stops(case, so_far)


def _sized(case: Case, job: Job, gpus_meant: int) -> Iterator[Recommendation]:
    """Propose the largest size up to the one that a job was stopped for, where it could start so now."""
    now, node_gpus = job.gang.gpu_count or 0, int(case.table.gpus_total.sum(axis=1).max(initial=1))
    for gpus in reversed(ladder(now + 1, gpus_meant, gpus_meant, node_gpus)):
        action = resized(job, gpus)
        if action is None or not fits_best(case.fitter, job, action):
            continue
        yield Recommendation(
            kind=Kind.RESIZE,
            action=action,
            facts=GrowsForRestart(gpus=now, gpus_after=gpus, gpus_meant=gpus_meant, lease_s=GROWTH_LEASE_S),
            # What it saves counts with the stop.
            expected=Expected(saved_s=0.0, saved_s_low=0.0, saved_s_high=0.0, jobs_helped=1, added_delay_max_s=0.0),
            revert_after_s=GROWTH_LEASE_S,
            stretch=case.beliefs.stretch(job, gpus).median,
        )
        return


def _stops(case: Case, so_far: Sequence[Recommendation]) -> Iterator[Recommendation]:
    """Propose to stop, in each pool, the job that gains most by a restart with more GPUs that fits."""
    held, busy = _held(case), _busy_pools(case)
    for rows in held.rows_by_pool():
        pool = int(held.pool[rows[0]])
        if pool in busy or case.queue.others_wait[pool]:
            continue
        found = [
            (row, restart)
            for gpu_type in np.unique(held.gpu_type[rows]).tolist()
            for row, restart in _restarts(case, held, rows[held.gpu_type[rows] == gpu_type], so_far)
        ]
        for row, restart in sorted(found, key=lambda one: (-one[1].gain_s, held.jobs[one[0]].job_id, one[1].gpus)):
            job = case.snapshot.jobs_by_id[held.jobs[row].job_id]
            action = resized(job, restart.gpus)
            if action is not None and _fits(case, job, action):
                yield _stop(case, job, restart)
                break


def _held(case: Case) -> QueueTable:
    """Return the table of the running jobs that can be stopped and whose run times are forecast, as if they waited."""
    jobs = [
        Requeue(job_id=job_id, for_job_id=job_id, before=None).applied_to(case.snapshot.jobs_by_id[job_id])
        for job_id in sorted(case.permits.restartable)
        if case.forecasts.of(job_id).run_time is not None and job_id in case.remaining_s
    ]
    as_waiting = tuple(
        replace(job, reason=_WAITS_FOR_GPUS, priority=1, eligible_time=None)
        for job in jobs
        if len(options(job)) > 1 and job.array is None
    )
    snapshot = replace(case.snapshot, jobs=as_waiting)
    return queue_table(snapshot, case.table, max(1, len(as_waiting)), case.forecasts)


def _busy_pools(case: Case) -> frozenset[int]:
    """Return the pools in which a job that was stopped to grow, or one held until later, is about to take GPUs."""
    soon, stopped = case.snapshot.taken_at + GROWTH_LEASE_S, restarting(case.memory.leases)
    pools = (
        case.queue.pool_by_partitions.get(job.partitions)
        for job in case.snapshot.pending
        if job.job_id in stopped
        or (job.gang.wants_gpus and not job.held and case.snapshot.taken_at < (job.eligible_time or 0.0) <= soon)
    )
    return frozenset(pool for pool in pools if pool is not None)


def _restarts(
    case: Case, held: QueueTable, rows: NDArray[np.intp], so_far: Sequence[Recommendation]
) -> Iterator[tuple[int, Restart]]:
    """Yield the restarts of the jobs of one pool and type that pay, with their rows of `held`."""
    pool, gpu_type = int(held.pool[rows[0]]), int(held.gpu_type[rows[0]])
    if gpu_type == ANY_TYPE and np.count_nonzero(held.pool_gpus[pool]) > 1:
        # Its speeds would be those of the type that it happens to get.
        return
    supply = _supply(case, pool, gpu_type, so_far)
    if supply.idle <= supply.wanted:
        return
    for first in range(0, len(rows), WINDOW):
        window = rows[first : first + WINDOW]
        jobs = [held.jobs[row] for row in window.tolist()]
        table = elastic_jobs(
            [scaling_of(job, int(supply.node_gpus), case.beliefs) for job in jobs],
            asked=held.gpus[window].astype(np.float64),
            run_s=np.array([case.remaining_s[job.job_id] for job in jobs]),
            run_is_forecast=held.run.by_model[window],
            limit_s=np.full(len(jobs), np.inf),
            wait_s=np.zeros(len(jobs)),
            limit_ratio=1.0,
        )
        lost_s = np.array([_lost_s(case, job.job_id) for job in jobs])
        choose = _choice(case, held, window)
        for restart in restarts(table, supply, choose, lost_s=lost_s, settings=case.settings):
            yield int(window[restart.place]), restart


def _supply(case: Case, pool: int, gpu_type: int, so_far: Sequence[Recommendation]) -> Supply:
    """Return the GPUs of a pool and type, and what pending jobs ask for once the changes so far are made."""
    queue = case.queue
    is_any = gpu_type == ANY_TYPE
    rivals = (queue.pool == pool) & (is_any | (queue.gpu_type == gpu_type) | (queue.gpu_type == ANY_TYPE))
    capacity, idle = (
        float(counts[pool].sum() if is_any else counts[pool][gpu_type]) for counts in (queue.pool_gpus, queue.pool_idle)
    )
    # Of every pool: more than enough.
    grown = sum(_added(change.action, case.snapshot) for change in so_far if isinstance(change.action, SetGpus))
    return supply_of(
        capacity=capacity,
        idle=idle,
        wanted=float((queue.gpus[rivals] * queue.tasks[rivals]).sum()) + grown,
        waiting=float(queue.tasks[rivals].sum()),
        node_gpus=int(case.table.gpus_total.sum(axis=1).max(initial=1)),
    )


def _added(action: SetGpus, snapshot: Snapshot) -> int:
    """Return the GPUs that a change of a size adds to what its job asks for."""
    gang = snapshot.jobs_by_id[action.job_id].gang
    return max(0, (gang.with_counts(action.scope, action.after.gpus).gpu_count or 0) - (gang.gpu_count or 0))


def _choice(case: Case, held: QueueTable, window: NDArray[np.intp]) -> Choose:
    """Return the choice of the policy, by the rule once there is none or it has failed."""
    least_ratio, decider = case.settings.min_marginal_ratio, case.decider

    def choose(steps: Steps, _supply: Supply) -> int | None:
        if decider.decides(Lever.GPU_COUNT):
            legal, options_now = step_options(steps, window)
            best = decider.best(lambda: board_of(held, case.table), options_now)
            if not decider.fault:
                return None if best is None else int(legal[best])
        scores = np.where(steps.is_legal, by_marginal_gain(steps, least_ratio), 0.0).ravel()
        return best_of(scores)

    return choose


def _lost_s(case: Case, job_id: int) -> float:
    """Return the expected lost work of a running job."""
    job = case.snapshot.jobs_by_id[job_id]
    return lost_work_s(case.snapshot.taken_at - (job.start_time or 0.0), job.hints.checkpoint_s or float("inf"))


def _fits(case: Case, job: Job, action: SetGpus) -> bool:
    """Return whether a running job fits at a new size, at the closest tier of that size, once it is stopped."""
    table = without(case.table, case.holdings, case.holdings.job_id == job.job_id)
    return fits_best(Fitter(case.snapshot, table), job, action)


def _stop(case: Case, job: Job, restart: Restart) -> Recommendation:
    return Recommendation(
        kind=Kind.RESIZE,
        action=Requeue(job_id=job.job_id, for_job_id=job.job_id, before=job.start_time, gpus_after=restart.gpus),
        facts=RestartsLarger(
            gpus=job.gang.gpu_count or 0,
            gpus_after=restart.gpus,
            remaining_s=case.remaining_s[job.job_id],
            saved_s=restart.saved_s,
            cost_s=restart.cost_s,
            lost_work_s=_lost_s(case, job.job_id),
            declared=job.hints.gpus,
            scaling_exponent=None
            if case.beliefs.speed_is_forecast(job, restart.gpus)
            else case.settings.scaling_exponent,
        ),
        # The low end is that the GPUs are gone by then, so that it restarts at its own size.
        expected=Expected(
            saved_s=restart.gain_s,
            saved_s_low=-restart.cost_s,
            saved_s_high=restart.gain_s,
            jobs_helped=1,
            added_delay_max_s=REQUEUE_HOLD_S,
        ),
        stretch=1.0 / restart.speed,
    )
