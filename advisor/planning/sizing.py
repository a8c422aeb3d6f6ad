"""Picks sizes of elastic jobs by rule, within the range a job declares, by marginal gain on its scaling curve.

Speed at n GPUs is as forecast, else taken as n**scaling_exponent. A job that cannot start yet shrinks to the largest
declared size that can start now, if running slower costs less than waiting; a job about to start grows onto GPUs
that no waiting job can use, step by step to the job that gains most per GPU (the marginal-gain rule of Optimus and
DL2's baselines; the assumed curve and the thresholds are ours).
"""

from collections.abc import Iterator, Sequence
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Reason, SetGpus, SizeRequest, limit_factor, raised_limit_s
from advisor.domain.dataclass import dataclass
from advisor.domain.gang import GpuCount, GpuScope
from advisor.domain.job import GpuRange, Job
from advisor.domain.plan import UNPUBLISHED, Expected, Facts, Kind, Recommendation, clipped
from advisor.domain.site import longest_limit_s
from advisor.features.capacity import Fitter
from advisor.features.queue import ANY_TYPE, QueueTable
from advisor.features.supply import Releases, wait_for_s
from advisor.planning.beliefs import Beliefs
from advisor.planning.case import Case
from advisor.planning.growth import GrowthStep, grown


@dataclass(frozen=True, slots=True, kw_only=True)
class Resizing(Facts):
    """The sizes of a job that grows or shrinks within the range that it declares; a rule is None where it is forecast.

    It runs `stretch` times as long. `time_limit_after_s` is its own time limit with the new size, None for none.
    """

    gpus: int
    gpus_after: int
    expected_wait_s: float
    expected_run_time_change_s: float
    time_limit_s: float
    time_limit_after_s: float | None
    declared: GpuRange | None = field(metadata=UNPUBLISHED)
    stretch: float = field(metadata=UNPUBLISHED)
    scaling_exponent: float | None = field(metadata=UNPUBLISHED)
    used_limit_ratio_low: float | None = field(metadata=UNPUBLISHED)

    @property
    def reason(self) -> Reason:
        """Return the reason by whether the job shrinks."""
        return Reason.SMALLER_STARTS_SOONER if self.gpus_after < self.gpus else Reason.IDLE_GPUS_TO_GROW


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """A new total GPU count for one row of the queue, how it is asked for, and the waiting it is expected to save."""

    row: int
    gpus: int
    action: SetGpus
    wait_saved_s: float


def resized(job: Job, gpus: int) -> SetGpus | None:
    """Return the action that asks for another total in the user's own form; None where that form cannot say it.

    The time limit stays; see `limited`.
    """
    gang, scope = job.gang, job.gang.scope
    if gang.has_slices:
        return None
    if gang.cpus_per_gpu is not None:
        # Slurm derives CPUs and node count from the GPUs then, and does not take the node count back.
        return None
    if scope is GpuScope.JOB and len(gang.per_job) == 1 and not (gang.per_node or gang.per_socket or gang.per_task):
        # Slurm 26.05 lowers a node count above the GPU count, and does not raise it again.
        too_many_nodes = gang.nodes_max is not None and gang.nodes_max > gpus
        return None if too_many_nodes else _set_gpus(job, scope, gang.per_job, gpus)
    fixed_nodes = gang.nodes_min == gang.nodes_max
    if scope is GpuScope.NODE and fixed_nodes and len(gang.per_node) == 1 and not (gang.per_socket or gang.per_task):
        per_node, rest = divmod(gpus, gang.nodes_min)
        if rest == 0 and per_node > 0:
            return _set_gpus(job, scope, gang.per_node, per_node)
    return None


def _set_gpus(job: Job, scope: GpuScope, held: tuple[GpuCount, ...], count: int) -> SetGpus:
    before = SizeRequest(gpus=held, time_limit_s=job.time_limit_s)
    after = replace(before, gpus=(replace(held[0], count=count),))
    return SetGpus(job_id=job.job_id, scope=scope, before=before, after=after)


def needed_limit_s(limit_s: float, stretch: float, *, ratio: float, longest_s: float) -> float | None:
    """Return the time limit that a smaller job needs, as it runs `stretch` times as long; infinity for none.

    None if that is more than `ratio` times its limit, or longer than `longest_s`, which its partitions admit.
    """
    needed_s = raised_limit_s(limit_s, stretch)
    return needed_s if needed_s <= max(limit_s, min(limit_s * ratio, longest_s)) else None


def options(job: Job) -> dict[int, SetGpus]:
    """Map the sizes a job may take, ascending, to how each is asked for."""
    declared = job.hints.gpus
    now = job.gang.gpu_count
    # One task per GPU means that the task count decides the size, and that is not ours to change.
    # A change to an array would change all of its tasks, those that fit now and those that do not.
    if declared is None or not now or (job.gang.tasks == now and now > 1) or job.array is not None:
        return {}
    return {size: action for size in declared.sizes if (action := resized(job, size)) is not None}


class _Pool:
    """The idle GPUs of one pool by type, as they are given out in order."""

    def __init__(self, idle: NDArray[np.int32]) -> None:
        self.idle = idle.astype(np.int64)

    def left(self, gpu_type: int) -> int:
        """GPUs left for a gang of one type; a gang of any type takes the type with most."""
        return int(self.idle.max(initial=0)) if gpu_type == ANY_TYPE else int(self.idle[gpu_type])

    def take(self, gpu_type: int, gpus: int) -> bool:
        """Take GPUs from the pool, and return whether there were enough of them."""
        if gpus > self.left(gpu_type):
            return False
        self.idle[int(self.idle.argmax()) if gpu_type == ANY_TYPE else gpu_type] -= gpus
        return True


def sizings(queue: QueueTable, rows: NDArray[np.intp], case: Case, untouchable: frozenset[int]) -> list[Sizing]:
    """Size the elastic jobs of one pool; `rows` `(n_rows,)` in planned order.

    Jobs in `untouchable` take their GPUs as they ask for them.
    """
    jobs = (queue.jobs[row] for row in rows.tolist())
    if all(job.hints.gpus is None or job.job_id in untouchable for job in jobs):
        return []
    number = int(queue.pool[rows[0]])
    pool = _Pool(queue.pool_idle[number])
    shrunk: list[Sizing] = []
    starting: list[int] = []
    # Slurm starts no job that would delay a job ahead of it that waits for the same GPUs.
    waiting_types: set[int] = set()
    releases = [case.freed]
    for row in rows.tolist():
        job, gpu_type, gpus = queue.jobs[row], int(queue.gpu_type[row]), int(queue.gpus[row])
        has_room = gpus <= pool.left(gpu_type) and case.fitter.has_room(job)
        if has_room and not case.fitter.restricts(job.gang, job.partitions):
            pool.take(gpu_type, gpus)
            releases.append(_release(queue, row))
            starting.append(row)
            if queue.tasks[row] > 1:
                waiting_types.add(gpu_type)
            continue
        smaller = None
        if job.job_id not in untouchable and job.hints.gpus is not None and not _meets_any(gpu_type, waiting_types):
            wait_s = wait_for_s(_merged(releases), number, gpu_type, gpus, pool.idle)
            smaller = _shrunk(queue, row, wait_s, pool, case)
        if smaller is None:
            waiting_types.add(gpu_type)
        else:
            pool.take(gpu_type, smaller.gpus)
            shrunk.append(smaller)
    growable = [
        row
        for row in starting
        if queue.jobs[row].job_id not in untouchable
        and not queue.others_wait[number]
        and not _meets_any(int(queue.gpu_type[row]), waiting_types)
    ]
    return shrunk + _grown(queue, growable, pool, case)


def _meets_any(gpu_type: int, types: set[int]) -> bool:
    """Return whether jobs of some types may want the GPUs that a job of `gpu_type` wants."""
    return bool(types) and (gpu_type == ANY_TYPE or gpu_type in types or ANY_TYPE in types)


def _release(queue: QueueTable, row: int) -> Releases:
    """Return what a job that starts now gives back when it is expected to end; never, where that is not known."""
    run_s = float(queue.run.expected_s[row])
    return Releases(
        after_s=np.array([run_s if np.isfinite(run_s) else np.inf]),
        pool=queue.pool[row : row + 1],
        gpu_type=queue.gpu_type[row : row + 1],
        gpus=queue.gpus[row : row + 1],
    )


def _merged(releases: Sequence[Releases]) -> Releases:
    """Join releases in order of time."""
    after_s = np.concatenate([part.after_s for part in releases])
    order = np.argsort(after_s, kind="stable")
    return Releases(
        after_s=after_s[order],
        pool=np.concatenate([part.pool for part in releases])[order],
        gpu_type=np.concatenate([part.gpu_type for part in releases])[order],
        gpus=np.concatenate([part.gpus for part in releases])[order],
    )


def _shrunk(queue: QueueTable, row: int, wait_s: float, pool: _Pool, case: Case) -> Sizing | None:
    """Return the largest smaller size that can start now, if it is expected to end sooner than waiting does."""
    job, now = queue.jobs[row], int(queue.gpus[row])
    for size, plain in reversed(options(job).items()):
        if size >= now or size > pool.left(int(queue.gpu_type[row])) or not fits_best(case.fitter, job, plain):
            continue
        saved_s = wait_s - _run_time_change_s(queue, row, size, case.beliefs)
        enough = np.isfinite(saved_s) and saved_s >= case.settings.min_saving_s
        action = limited(plain, job, size, case)
        return Sizing(row=row, gpus=size, action=action, wait_saved_s=wait_s) if enough and action is not None else None
    return None


def limited(action: SetGpus, job: Job, size: int, case: Case) -> SetGpus | None:
    """Return a change of a size with the time limit that it needs; None if the limit cannot be raised so far."""
    if not action.shrinks or job.time_limit_s is None:
        return action
    limit_s = needed_limit_s(
        job.time_limit_s,
        limit_factor(job.gang.gpu_count or size, size, case.beliefs.stretch(job, size).median),
        ratio=case.limits.max_limit_ratio,
        longest_s=longest_limit_s(job.partitions, case.snapshot.partitions_by_name),
    )
    return None if limit_s is None else replace(action, after=replace(action.after, time_limit_s=limit_s))


def _grown(queue: QueueTable, starting: Sequence[int], pool: _Pool, case: Case) -> list[Sizing]:
    """Give GPUs that no job waits for to the jobs about to start, the step with the highest score first."""
    # The lower job id settles ties.
    elastic = sorted(
        (row for row in starting if _growth_pays(queue, row, case.beliefs)), key=lambda row: queue.jobs[row].job_id
    )
    before = [int(queue.gpus[row]) for row in elastic]
    step_by_size = {
        (place, now): step for place, row in enumerate(elastic) for now, step in _steps(queue, row, pool, case)
    }

    def take(place: int, gpus: int) -> bool:
        return pool.take(int(queue.gpu_type[elastic[place]]), gpus)

    after = grown(before, int(pool.idle.sum()), lambda place, size: step_by_size.get((place, size)), take)
    size_by_row = {row: size for row, size in zip(elastic, after, strict=True) if size > queue.gpus[row]}
    return [
        Sizing(row=row, gpus=size, action=options(queue.jobs[row])[size], wait_saved_s=0.0)
        for row in starting
        if (size := size_by_row.get(row)) is not None
    ]


def _steps(queue: QueueTable, row: int, pool: _Pool, case: Case) -> Iterator[tuple[int, GrowthStep]]:
    """Yield sizes of a job, each with the next step, up to the first that adds too little."""
    job, beliefs = queue.jobs[row], case.beliefs
    asked = now = int(queue.gpus[row])
    for size, action in options(job).items():
        if size <= now:
            continue
        gain = (beliefs.speed(job, size).median - beliefs.speed(job, now).median) / (size - now)
        is_free = size - asked <= pool.left(int(queue.gpu_type[row])) and fits_best(case.fitter, job, action)
        if gain < beliefs.settings.min_marginal_ratio or not is_free:
            return
        yield now, GrowthStep(size, gain)
        now = size


def _growth_pays(queue: QueueTable, row: int, beliefs: Beliefs) -> bool:
    """Return whether the next larger size of a job already saves enough run time to be worth proposing."""
    bigger = next((size for size in options(queue.jobs[row]) if size > queue.gpus[row]), None)
    if bigger is None or not np.isfinite(queue.limit_s[row]):
        return False
    return -_run_time_change_s(queue, row, bigger, beliefs) >= beliefs.settings.min_saving_s


def fits_best(fitter: Fitter, job: Job, action: SetGpus) -> bool:
    """Return whether a job could start now at its new size, at the closest tier that size allows."""
    gang = action.applied_to(job).gang
    tier_now = fitter.tier_now(gang, job.partitions)
    if tier_now is None:
        return False
    fit = fitter.fit_in_service(gang, job.partitions)
    return tier_now <= fit.best_tier and not fit.restricted


def _run_time_change_s(queue: QueueTable, row: int, size: int, beliefs: Beliefs) -> float:
    """Return how much longer (or, below 0, shorter) the run is expected to take at `size`."""
    return float(queue.run.expected_s[row]) * (beliefs.stretch(queue.jobs[row], size).median - 1.0)


def _saved_s(queue: QueueTable, sizing: Sizing, beliefs: Beliefs) -> tuple[float, float]:
    """Return the least and the most that a new size saves.

    By rule the running jobs and this one use their limits in equal shares, from the least share on.
    """
    row, stretch = sizing.row, beliefs.stretch(queue.jobs[sizing.row], sizing.gpus)
    if queue.run.by_model[row]:
        ends = [
            sizing.wait_saved_s - run_s * (ratio - 1.0)
            for run_s in (float(queue.run.low_s[row]), float(queue.run.high_s[row]))
            for ratio in (stretch.low, stretch.high)
        ]
        return min(ends), max(ends)
    low_s = sizing.wait_saved_s - _run_time_change_s(queue, row, sizing.gpus, beliefs)
    return low_s, low_s * float(queue.run.high_s[row] / queue.run.expected_s[row])


def recommended(queue: QueueTable, chosen: Sequence[Sizing], beliefs: Beliefs) -> Iterator[Recommendation]:
    """Turn sizes into recommendations, with the numbers behind each."""
    for sizing in chosen:
        low_s, high_s = _saved_s(queue, sizing, beliefs)
        mean_s = sizing.wait_saved_s - _run_time_change_s(queue, sizing.row, sizing.gpus, beliefs)
        facts = _facts(queue, sizing, beliefs)
        yield Recommendation(
            kind=Kind.RESIZE,
            action=sizing.action,
            facts=facts,
            stretch=facts.stretch,
            expected=Expected(
                saved_s=clipped(mean_s, low_s, high_s),
                saved_s_low=low_s,
                saved_s_high=high_s,
                jobs_helped=1,
                added_delay_max_s=0.0,
            ),
        )


def _facts(queue: QueueTable, sizing: Sizing, beliefs: Beliefs) -> Resizing:
    row, job, size = sizing.row, queue.jobs[sizing.row], sizing.gpus
    return Resizing(
        gpus=int(queue.gpus[row]),
        gpus_after=size,
        expected_wait_s=sizing.wait_saved_s,
        expected_run_time_change_s=_run_time_change_s(queue, row, size, beliefs),
        time_limit_s=float(queue.limit_s[row]),
        time_limit_after_s=sizing.action.after.time_limit_s,
        declared=job.hints.gpus,
        stretch=beliefs.stretch(job, size).median,
        scaling_exponent=None if beliefs.speed_is_forecast(job, size) else beliefs.settings.scaling_exponent,
        used_limit_ratio_low=None if queue.run.by_model[row] else beliefs.settings.used_limit_ratio_low,
    )
