"""Proposes that jobs of one user or one account change places, the smaller one with the larger one before it.

`exchanges` chooses the pairs; the simulated policies `lift-user` and `lift-account` call it on the arrays of the
simulation. A group are the jobs of one user, or of one account. The places of a group do not change, only who stands in
them: an exchange is proposed only if as many jobs as before stand ahead of every job of another group.
"""

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Reason, SetNice
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.lease import gave_place
from advisor.domain.mark import MARK_SPAN, marked_beside
from advisor.domain.plan import UNPUBLISHED, Expected, Facts, Kind, Recommendation, clipped
from advisor.features.queue import QueueTable
from advisor.planning.beliefs import Basis
from advisor.planning.case import Case
from advisor.planning.lift import late_jobs
from advisor.planning.objective import bound_s, scoped_keys

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftShares:
    """The shares that make up by how much the start of a job shifts, in seconds.

    Of the work between two jobs, worked off by all GPUs at once, that is `mean` on average, and `between` at most with
    `run` of the mean run time in the line; at least it is minus `back` of that run time.
    """

    mean: float
    back: float
    between: float
    run: float

    def of(self, between_s: float, run_s: float) -> tuple[float, float, float]:
        """Return the low end, the mean and the high end."""
        return -self.back * run_s, self.mean * between_s, self.between * between_s + self.run * run_s


SOONER: Final = ShiftShares(mean=1.0, back=0.7, between=1.5, run=3.7)
LATER: Final = ShiftShares(mean=1.4, back=1.6, between=1.1, run=3.6)
# Of what all jobs between two would gain if each waited for the smaller one in place of the larger, what comes.
GAINED_SHARE: Final = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """Pairs of jobs, as rows `(n_pairs,)`: `up[i]` goes to the place of `down[i]`, and that one to its place."""

    up: Rows
    down: Rows


def exchanges(
    key: Floats,
    priority: Floats,
    group: NDArray[np.integer],
    can_rise: Flags,
    can_give: Flags,
    *,
    places: int,
    due: Floats | None = None,
) -> Exchanges:
    """Return the exchanges that fill the first `places` of a line with the lowest keys of each group.

    All arrays are `(n_jobs,)` and hold the jobs of one line in its present order: `priority` as it is now, `group`
    whose places a job can take. A job is in one pair at most. Of equal keys the last in the line goes up, so that the
    larger job is passed by all of them at once. Of the smaller jobs those with the earliest deadlines, `due`, go up
    first, and a job gives its place to none with a later one.
    """
    free = can_rise.copy()
    due = np.zeros(len(key)) if due is None else due
    up: list[int] = []
    down: list[int] = []
    for place in np.flatnonzero(can_give[:places]).tolist():
        if place in up:
            continue
        smaller = free & (group == group[place]) & (key < key[place]) & (due <= due[place])
        behind = np.flatnonzero(smaller & (priority < priority[place]))
        if len(behind):
            chosen = int(behind[np.lexsort((-behind, key[behind], due[behind]))[0]])
            free[[chosen, place]] = False
            up.append(chosen)
            down.append(place)
    return Exchanges(up=np.array(up, dtype=np.intp), down=np.array(down, dtype=np.intp))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged(Facts):
    """What is expected of the two jobs of an exchange, and how many jobs stand between them.

    GPU-hours are those of all waiting tasks of an array. `scope` is what the jobs share: a user or an account. `basis`
    is what the run time of the job rests on. `sooner_s_low` and `sooner_s_high` are by how much it starts sooner than
    on a cluster without advice, in four of five cases; below 0 it starts later.
    """

    scope: str
    other_job_id: int
    gpu_hours: float
    gpu_hours_of_other: float
    jobs_between: int
    priority: int
    priority_after: int
    queueing_delay_s: float
    basis: Basis
    sooner_s_low: float
    sooner_s_high: float
    sooner_s_mean: float = field(metadata=UNPUBLISHED)
    used_limit_ratio_low: float = field(metadata=UNPUBLISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakesPlace(Exchanged):
    """The facts of the job that goes up."""

    reason = Reason.TAKES_PLACE_OF_LARGER


@dataclass(frozen=True, slots=True, kw_only=True)
class GivesPlace(Exchanged):
    """The facts of the job that gives its place."""

    reason = Reason.GIVES_PLACE_TO_SMALLER


def recommendations(case: Case, so_far: Sequence[Recommendation] = ()) -> Iterator[Recommendation]:
    """Propose exchanges, pool by pool; both halves of each."""
    if case.limits.lifts_pass_others:
        return
    queue = case.whole_queue
    memory = case.memory
    done = (case.untouchable - case.permits.nice_only) | memory.outstanding | memory.lifted
    done |= {change.job_id for change in so_far}
    for pool in range(len(queue.pool_gpus)):
        rows = queue.rows_of(pool)
        if len(rows) > 1 and queue.pool_gpus[pool].sum() > 0:
            yield from _of_pool(case, queue, rows, done)


def _of_pool(case: Case, queue: QueueTable, line: Rows, done: frozenset[int]) -> Iterator[Recommendation]:
    """Propose the exchanges of one pool, among the jobs of its line whose run times are known."""
    rows = line[np.isfinite(queue.run.expected_s[line])]
    jobs = [queue.jobs[row] for row in rows.tolist()]
    owners = [_owner(case, job) for job in jobs]
    is_overdue = late_jobs(case, jobs)
    can_move = np.array(
        [job.job_id not in done and bool(owner) for job, owner in zip(jobs, owners, strict=True)], dtype=np.bool_
    )
    gave = gave_place(case.memory.leases)
    chosen = exchanges(
        scoped_keys(queue.width[rows] * queue.run.expected_s[rows], is_overdue),
        queue.priority[rows].astype(np.float64),
        np.unique(owners, return_inverse=True)[1],
        can_move,
        can_move & ~is_overdue & np.array([job.job_id not in gave for job in jobs], dtype=np.bool_),
        places=case.settings.lift_places,
        due=_due(case, jobs, is_overdue),
    )
    # A job of a pair before stands where it is now, or where the exchange puts it: no later pair may pass either place.
    standing = [queue.jobs[row] for row in line.tolist()]
    for place_up, place_down in zip(chosen.up.tolist(), chosen.down.tolist(), strict=True):
        up, down = jobs[place_up], jobs[place_down]
        others = [job for job in standing if _owner(case, job) != _owner(case, up)]
        nice_up, nice_down = _nice_at(up, down, others), _nice_at(down, up, others)
        if nice_up is not None and nice_down is not None and nice_up >= case.limits.nice_min:
            standing += _moved(up, nice_up), _moved(down, nice_down)
            yield from _pair(case, queue, rows[[place_up, place_down]], (nice_up, nice_down))


def _due(case: Case, jobs: Sequence[Job], is_overdue: Flags) -> Floats | None:
    """Return the deadlines that users declare, which order their own jobs alone; None where others are in the group.

    A job that is overdue comes before them, one whose deadline has passed has none.
    """
    if case.limits.fairness != "user":
        return None
    now = case.snapshot.taken_at
    due = np.array([job.hints.deadline_time or 0.0 for job in jobs])
    return np.where(is_overdue, -np.inf, np.where(due > now, due, np.inf))


def _owner(case: Case, job: Job) -> str:
    """Return the user or the account of a job, by the fairness; empty where it is not known."""
    return job.user if case.limits.fairness == "user" else job.account


def _nice_at(job: Job, other: Job, others: Sequence[Job]) -> int | None:
    """Return a marked nice that puts a job near the other's priority past no more jobs of others; None for none.

    On either side of 0 marked values are further apart than elsewhere.
    """
    if job.priority is None or other.priority is None:
        return None
    ahead = _ahead(other, others)
    rises = other.priority > job.priority
    for nice in marked_beside(job.nice + job.priority - other.priority):
        if nice == job.nice or (nice < job.nice) is not rises:
            continue
        moved = _moved(job, nice)
        is_near = abs((moved.priority or 0) - other.priority) < MARK_SPAN
        if is_near and _ahead(moved, others) == ahead:
            return nice
    return None


def _moved(job: Job, nice: int) -> Job:
    """Return a job as it stands with another nice."""
    return SetNice(job_id=job.job_id, before=job.nice, after=nice).applied_to(job)


def _ahead(job: Job, others: Sequence[Job]) -> int:
    """Return how many other jobs Slurm considers before a job."""
    place = (-(job.priority or 0), job.submit_time, job.job_id)
    return sum((-(other.priority or 0), other.submit_time, other.job_id) < place for other in others)


def _pair(case: Case, queue: QueueTable, pair: Rows, nices: tuple[int, int]) -> Iterator[Recommendation]:
    """Return both halves of an exchange; `pair` holds the row that goes up and the one that goes down."""
    up, down = pair.tolist()
    # What stands between is passed by the one and let ahead by the other; it is worked off by all GPUs of the pool.
    line = queue.rows_of(int(queue.pool[up]))
    line = line[np.isfinite(queue.run.expected_s[line])]
    between = line[(line > down) & (line < up)]
    capacity = float(queue.pool_capacity[queue.pool[up]].sum())
    work_s = queue.width * queue.run.expected_s / capacity
    run_s = float(work_s[line].sum() * capacity / queue.width[line].sum())
    between_s, up_s, down_s = float(work_s[between].sum()), float(work_s[up]), float(work_s[down])
    sooner, later = SOONER.of(between_s + down_s, run_s), LATER.of(between_s + up_s, run_s)
    shifts = sooner, tuple(-end for end in reversed(later))
    saved_s_low, saved_s_high = sooner[0] - later[2], sooner[2] - later[0]
    saved_s = clipped(GAINED_SHARE * (len(between) + 1) * (down_s - up_s), saved_s_low, saved_s_high)
    # Put back then, a job is not later than its bound: without advice it waits as long at least as it has.
    waited_s = np.array([queue.wait_s[down]])
    leases_s = (case.settings.lift_lease_s, float(bound_s(waited_s, case.limits)[0]))
    for half, (row, other) in enumerate(((up, down), (down, up))):
        job, (sooner_s_low, sooner_s_mean, sooner_s_high) = queue.jobs[row], shifts[half]
        make = GivesPlace if half else TakesPlace
        yield Recommendation(
            kind=Kind.REORDER,
            action=SetNice(
                job_id=job.job_id, before=job.nice, after=nices[half], exchanged_with=queue.jobs[other].job_id
            ),
            facts=make(
                scope=case.limits.fairness,
                other_job_id=queue.jobs[other].job_id,
                gpu_hours=_gpu_hours(queue, row),
                gpu_hours_of_other=_gpu_hours(queue, other),
                jobs_between=len(between),
                priority=int(queue.priority[row]),
                priority_after=int(queue.priority[row]) + job.nice - nices[half],
                queueing_delay_s=float(queue.wait_s[row]),
                basis=Basis.FORECAST if queue.run.by_model[row] else Basis.RULE,
                sooner_s_low=sooner_s_low,
                sooner_s_high=sooner_s_high,
                sooner_s_mean=sooner_s_mean,
                used_limit_ratio_low=case.settings.used_limit_ratio_low,
            ),
            # The gain of the exchange as a whole stands with the job that goes up.
            expected=Expected(
                saved_s=0.0 if half else saved_s,
                saved_s_low=0.0 if half else saved_s_low,
                saved_s_high=0.0 if half else saved_s_high,
                jobs_helped=0 if half else 1,
                added_delay_max_s=0.0,
            ),
            revert_after_s=leases_s[half],
        )


def _gpu_hours(queue: QueueTable, row: int) -> float:
    """Return the GPU-hours that a row is expected to take with all its waiting tasks."""
    return float(queue.width[row] * queue.run.expected_s[row]) / 3600
