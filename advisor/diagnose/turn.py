"""Says where a pending job stands: in line now and as submitted, behind which lifted jobs, and against no advice."""

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.standings import Standing
from advisor.planning.beliefs import Basis
from advisor.planning.case import Case
from advisor.planning.lift import lifted_gpu_s, ranks
from advisor.planning.lifts import Bounds
from advisor.planning.objective import bound_s, credit, is_weighed, owed_to


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceInLine:
    """The place of a job among the `jobs` that wait for the same GPUs, from 1, and what its size rests on.

    `place_as_submitted` is that in the site's own order, without the nice of lifts. `gpus` is what it asks for, and
    `gpus_taken` the GPUs that other jobs cannot have while it runs. `gpu_s` is the GPU-time that it is expected to
    take, `gpus_taken` times `run_s` of each of `tasks`; None, as `run_s`, where it has neither limit nor forecast.
    `lifted_ahead` lifted jobs stand before it, of which `passed_by` stood behind it as submitted;
    `lifted_ahead_gpu_s` is their expected GPU-time, of those whose size is known. `liftable_gpu_s` is the bound on the
    lifts of its user where it is an array that counts as `most_gpu_s`, more than that; None for other jobs.
    """

    jobs: int
    place: int
    place_as_submitted: int
    gpus: int
    gpus_taken: float
    tasks: int
    run_s: float | None
    gpu_s: float | None
    limit_s: float | None
    basis: Basis
    is_lifted: bool
    lifted_ahead: int
    lifted_ahead_gpu_s: float
    passed_by: int
    most_gpu_s: float | None = None
    liftable_gpu_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutAdvice:
    """What plain Slurm beside the cluster says of a job that waits, up to its last run at `until`.

    `start_time` is when the job would most likely have started, None if it would still wait. `bound_s` is how much
    later than that it can get before it goes before all others, None where it does not.
    """

    until: float
    start_time: float | None
    late_s: float
    bound_s: float | None

    @property
    def is_late(self) -> bool:
        """Whether the job goes before all others."""
        return self.bound_s is not None and self.late_s > self.bound_s


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTurn:
    """The turn of a pending job; each part is None where it is not known.

    `standing` is how long the jobs of its user waited in the last week, with and without advice, `owed` by how much
    longer than agreed for certain, and `credit` how many times as much the jobs weigh for that, `max_credit` at most.
    """

    place: PlaceInLine | None
    without_advice: WithoutAdvice | None
    standing: Standing | None
    owed: float
    credit: float
    max_credit: float


def turn_of(case: Case, job: Job) -> JobTurn:
    """Return the turn of a pending job."""
    standing = case.memory.standings.by_user.get(job.user)
    most = case.settings.max_credit
    owed = owed_to([] if standing is None else [standing], case.limits)
    return JobTurn(
        place=_place(case, job),
        without_advice=_without_advice(case, job),
        standing=standing,
        owed=float(owed.sum()),
        credit=float(credit(owed, most).prod()) if is_weighed(case.limits) else 1.0,
        max_credit=most,
    )


def _place(case: Case, job: Job) -> PlaceInLine | None:
    """Return the place of a job; None if it does not compete for GPUs now, or its place is not known."""
    queue = case.whole_queue
    row = next((row for row, other in enumerate(queue.jobs) if other.job_id == job.job_id), None)
    if row is None:
        return None
    rows = queue.rows_of(int(queue.pool[row]))
    here, jobs = int(np.flatnonzero(rows == row)[0]), [queue.jobs[row] for row in rows.tolist()]
    ours = np.array([case.nice_of_ours.get(other.job_id, 0) for other in jobs], dtype=np.int64)
    rank = ranks(queue, rows, queue.priority[rows] + ours)
    # Rows stand in the present order.
    ahead = (ours < 0) & (np.arange(len(rows)) < here)
    gpu_s = queue.expected_gpu_s[rows]
    run_s, counted_gpu_s = float(queue.run.expected_s[row]), float(lifted_gpu_s(queue, case.limits)[row])
    bounds = Bounds.of(case.settings, case.limits, float(queue.pool_capacity[queue.pool[row]].sum()))
    liftable_gpu_s = bounds.most_gpu_s(len({other.user for other in jobs}))
    is_too_large = bool(
        case.limits.lifts_pass_others and queue.tasks[row] > 1 and ours[here] >= 0 and counted_gpu_s > liftable_gpu_s
    )
    return PlaceInLine(
        jobs=len(rows),
        place=here + 1,
        place_as_submitted=int(rank[here]) + 1,
        gpus=int(queue.gpus[row]),
        gpus_taken=float(queue.taken[row]),
        tasks=int(queue.tasks[row]),
        run_s=run_s if np.isfinite(run_s) else None,
        gpu_s=float(gpu_s[here]) if np.isfinite(run_s) else None,
        limit_s=limit_s if np.isfinite(limit_s := float(queue.limit_s[row])) else None,
        basis=Basis.FORECAST if queue.run.by_model[row] else Basis.RULE,
        is_lifted=bool(ours[here] < 0),
        lifted_ahead=int(ahead.sum()),
        lifted_ahead_gpu_s=float(np.nansum(gpu_s[ahead])),
        passed_by=int((ahead & (rank > rank[here])).sum()),
        most_gpu_s=counted_gpu_s if is_too_large else None,
        liftable_gpu_s=liftable_gpu_s if is_too_large else None,
    )


def _without_advice(case: Case, job: Job) -> WithoutAdvice | None:
    """Return what is known of a job without advice; None before the first run that it was part of."""
    standings, now = case.memory.standings, case.snapshot.taken_at
    if standings.until is None or job.submit_time > standings.until:
        return None
    start_time = standings.plain_start_by_job.get(job.job_id)
    goes_first = is_weighed(case.limits) and case.limits.lifts_pass_others
    wait_s = 0.0 if start_time is None else start_time - (now - job.queueing_delay_s(now))
    return WithoutAdvice(
        until=standings.until,
        start_time=start_time,
        late_s=0.0 if start_time is None else now - start_time,
        bound_s=float(bound_s(np.array([wait_s]), case.limits)[0]) if goes_first else None,
    )
