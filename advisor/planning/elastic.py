"""Proposes sizes for elastic jobs: those of a learned policy, or of the rules where there is none or it fails.

The policy sizes the jobs whose turn is near, window by window: from the smallest size on that is allowed it takes one
step after the other, until it stops (DL2). The tables of a window are those of `features.steps`.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever
from advisor.domain.job import GpuRange, Job
from advisor.domain.plan import Recommendation
from advisor.features.queue import ANY_TYPE, QueueTable
from advisor.features.steps import (
    WINDOW,
    Scaling,
    Steps,
    Supply,
    Window,
    between,
    climb,
    elastic_jobs,
    ladder,
    near,
    rungs,
    step_options,
    supply_of,
)
from advisor.features.supply import wait_for_s
from advisor.planning.beliefs import Beliefs
from advisor.planning.case import Case
from advisor.planning.sizing import Sizing, fits_best, limited, options, recommended, resized, sizings


def recommendations(case: Case, so_far: Sequence[Recommendation] = ()) -> Iterator[Recommendation]:
    """Propose sizes for elastic jobs."""
    queue, done = case.queue_after(so_far), case.done(so_far)
    for rows in queue.rows_by_pool():
        chosen = _learned(queue, rows, case, done)
        yield from recommended(queue, sizings(queue, rows, case, done) if chosen is None else chosen, case.beliefs)


def windows(queue: QueueTable, rows: NDArray[np.intp], case: Case, untouchable: frozenset[int]) -> Iterator[Window]:
    """Yield the windows of a pool, given as `rows` in the order of the line, with the jobs that can start soon."""
    pool, types = int(queue.pool[rows[0]]), queue.gpu_type[rows]
    gpus = (queue.gpus[rows] * queue.tasks[rows]).astype(np.float64)
    node_gpus = int(case.table.gpus_total.sum(axis=1).max(initial=1))
    for gpu_type in sorted(set(types.tolist())):
        is_any = gpu_type == ANY_TYPE
        rivals = np.ones(len(rows), np.bool_) if is_any else (types == gpu_type) | (types == ANY_TYPE)
        capacity, idle = (
            float(counts[pool].sum() if is_any else counts[pool][gpu_type])
            for counts in (queue.pool_gpus, queue.pool_idle)
        )
        soon = rows[rivals][: near(gpus[rivals], idle, capacity)]
        sized = [row for row in soon[queue.gpu_type[soon] == gpu_type].tolist() if _is_sized(queue, row, untouchable)]
        supply = supply_of(
            capacity=capacity,
            idle=idle,
            wanted=gpus[rivals].sum(),
            waiting=queue.tasks[rows][rivals].sum(),
            node_gpus=node_gpus,
        )
        for first in range(0, len(sized), WINDOW):
            of_window = np.array(sized[first : first + WINDOW], np.intp)
            tables = [scaling_of(queue.jobs[row], node_gpus, case.beliefs) for row in of_window.tolist()]
            jobs = elastic_jobs(
                tables,
                asked=queue.gpus[of_window].astype(np.float64),
                run_s=queue.run.expected_s[of_window],
                run_is_forecast=queue.run.by_model[of_window],
                limit_s=np.array([_limit_s(queue.jobs[row]) for row in of_window.tolist()]),
                wait_s=queue.wait_s[of_window],
                limit_ratio=case.limits.max_limit_ratio,
            )
            yield Window(rows=of_window, jobs=jobs, supply=supply)


def scaling_of(job: Job, node_gpus: int, beliefs: Beliefs) -> Scaling:
    """Return the sizes of an elastic job with its speeds: forecast at the declared sizes, or by rule."""
    asked, declared = job.gang.gpu_count or 1, job.hints.gpus or GpuRange(low=1, high=1)
    sizes = rungs(ladder(declared.low, declared.high, asked, node_gpus))
    known = sorted({*declared.sizes, asked})
    relative = np.array([1.0 / beliefs.stretch(job, size).median for size in known])
    return Scaling(
        sizes=sizes,
        speed=between(sizes, np.array(known, dtype=np.float64), relative),
        is_forecast=beliefs.speed_is_forecast(job, declared.high),
    )


def _is_sized(queue: QueueTable, row: int, untouchable: frozenset[int]) -> bool:
    return queue.jobs[row].job_id not in untouchable and len(options(queue.jobs[row])) > 1


def _limit_s(job: Job) -> float:
    return np.inf if job.time_limit_s is None else job.time_limit_s


def _learned(queue: QueueTable, rows: NDArray[np.intp], case: Case, untouchable: frozenset[int]) -> list[Sizing] | None:
    """Return the sizes that the policy gives the jobs of a pool; None where there is no policy, or it failed."""
    decider = case.decider
    if not decider.decides(Lever.GPU_COUNT):
        return None
    chosen: list[Sizing] = []
    for window in windows(queue, rows, case, untouchable):
        ids = np.array([queue.jobs[row].job_id for row in window.rows.tolist()], np.int64)

        def choose(steps: Steps, _supply: Supply, ids: NDArray[np.int64] = ids) -> int | None:
            legal, options_now = step_options(steps, ids)
            best = decider.best(options_now)
            return None if best is None else int(legal[best])

        rung = climb(window.jobs, window.supply, choose)
        if decider.fault:
            return None
        chosen += _sizings(queue, window, rung, case)
    return chosen


def _sizings(queue: QueueTable, window: Window, rung: NDArray[np.intp], case: Case) -> Iterator[Sizing]:
    """Yield the sizes that differ from what jobs ask for, where the request can say them and the job can start so.

    A smaller size is left out where the time limit cannot be raised as far as it needs.
    """
    idle = case.queue.pool_idle[int(queue.pool[window.rows[0]])].astype(np.int64)
    sizes = np.take_along_axis(window.jobs.sizes, rung[:, None], axis=1)[:, 0].astype(np.int64)
    for row, size in zip(window.rows.tolist(), sizes.tolist(), strict=True):
        asked = int(queue.gpus[row])
        job = queue.jobs[row]
        plain = resized(job, size) if size != asked else None
        action = None if plain is None else limited(plain, job, size, case)
        if action is None or (size > asked and not fits_best(case.fitter, job, action)):
            continue
        at_asked, at_size = (_wait_s(queue, row, gpus, idle, case) for gpus in (asked, size))
        saved_s = max(0.0, at_asked - at_size) if np.isfinite(at_asked) and size < asked else 0.0
        yield Sizing(row=row, gpus=size, action=action, wait_saved_s=saved_s)


def _wait_s(queue: QueueTable, row: int, gpus: int, idle: NDArray[np.int64], case: Case) -> float:
    """Return how long a job waits for GPUs if no other job takes them."""
    pool, gpu_type = int(queue.pool[row]), int(queue.gpu_type[row])
    left = int(idle.max(initial=0)) if gpu_type == ANY_TYPE else int(idle[gpu_type])
    return 0.0 if gpus <= left else wait_for_s(case.freed, pool, gpu_type, gpus, idle)
