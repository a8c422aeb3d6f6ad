"""Compares jobs that a change can delay with their start as submitted, and finds the changes that no longer serve.

As submitted, a job stands at the priority of its user's own fields, and the jobs that started while the change was out,
from places behind it, have not started. Its planned start is that of a schedule by time limits, node by node. In each
later round it would start once what it asks for fits beside the jobs ahead of it, whose GPUs count as interchangeable.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever, Requeue, SetNice
from advisor.domain.job import Job, JobState
from advisor.domain.lease import Ending, Lease, LeaseState, earlier_of
from advisor.domain.plan import Plan, Recommendation
from advisor.domain.units import DAY_S
from advisor.features.capacity import Fitter
from advisor.features.nodes import UNTYPED
from advisor.features.queue import ANY_TYPE, QueueTable, competes_now
from advisor.planning.case import Case
from advisor.planning.earliest import earliest, without
from advisor.planning.timetable import Timetable

# The tasks of an array for which Slurm's backfill keeps places: the default of bf_max_job_array_resv.
_MOST_TASKS: Final = 20
# A start further ahead is unknown.
_HORIZON_S: Final = 30 * DAY_S


class Over(StrEnum):
    """Why a change no longer serves; documented in docs/delay.md."""

    SERVED = "served"  # the jobs that it let ahead have started or left the queue
    WOULD_START = "would_start"  # as submitted the job would start now, on GPUs that are idle
    UNCOUNTED = "uncounted"  # a job that it was not to let ahead stands before it, or has started
    HALF_BOUND = "half_bound"  # the job has waited half of its bound longer than as submitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A job that still waits after a change: since when it would run as submitted, and the levers that are over.

    `would_start_time` is None while it would not have started either.
    """

    job_id: int
    would_start_time: float | None
    over: Mapping[Lever, Over]


def watched(case: Case) -> tuple[Watched, ...]:
    """Compare each changed job that still waits with its start as submitted, by job id."""
    leases_by_job = _waiting(case)
    if not leases_by_job:
        return ()
    line = _Line.of(case, since=min(lease.applied_time for leases in leases_by_job.values() for lease in leases))
    return tuple(_watched(case, line, job_id, leases_by_job[job_id]) for job_id in sorted(leases_by_job))


def with_planned_starts(plan: Plan, case: Case) -> Plan:
    """Return a plan in which each change that can delay its job states the planned and the latest start.

    Both are by time limits. The planned start is that of the job as submitted, if no other job arrives: slurmctld's own
    where that is earlier. The latest start of a job that steps back is that behind the jobs that it lets ahead; that of
    a gang that waits for a place is as the first in line if other jobs take all idle GPUs.
    """
    delaying = {change.job_id: change for change in plan.recommendations if change.expected.added_delay_max_s > 0.0}
    if not delaying:
        return plan
    line, leases_by_job = _Line.of(case), _waiting(case)
    starts_s = _starts_by_limits_s(case, line, {job_id: line.let_ahead(change) for job_id, change in delaying.items()})
    return Plan(
        recommendations=tuple(
            change
            if change.job_id not in delaying
            else _with_planned_start(
                change, case, line, starts_s.get(change.job_id, _NEVER), leases_by_job.get(change.job_id, ())
            )
            for change in plan.recommendations
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Starts:
    """When a job starts by time limits, as submitted and behind others, in seconds from the snapshot."""

    as_submitted_s: float
    behind_s: float


_NEVER = _Starts(as_submitted_s=np.inf, behind_s=np.inf)


def _starts_by_limits_s(case: Case, line: "_Line", rows_ahead: Mapping[int, Sequence[int]]) -> Mapping[int, _Starts]:
    """Map jobs to their starts by time limits as submitted, and behind the rows that go ahead of them.

    Slurm's backfill keeps no place for a job beyond its depth, so that no start is known there.
    """
    submitted, timetable, left = line.submitted, case.timetable(_HORIZON_S), set(rows_ahead)
    starts_s: dict[int, _Starts] = {}
    for row in (row for rows in submitted.rows_by_pool() for row in rows.tolist()):
        job_id = submitted.jobs[row].job_id
        if not left:
            break
        if job_id not in case.tested:
            continue
        if job_id in left:
            left.remove(job_id)
            as_submitted_s = _start_s(timetable, submitted, row)
            with timetable.trial():
                for other in rows_ahead[job_id]:
                    _schedule(timetable, submitted, other)
                behind_s = _start_s(timetable, submitted, row)
            is_kept = all(submitted.jobs[other].job_id in case.tested for other in rows_ahead[job_id])
            starts_s[job_id] = _Starts(as_submitted_s=as_submitted_s, behind_s=behind_s if is_kept else np.inf)
        _schedule(timetable, submitted, row)
    return starts_s


def _start_s(timetable: Timetable, queue: QueueTable, row: int) -> float:
    """Return when the job of a row starts, infinity beyond the horizon."""
    slot = timetable.slot(queue.jobs[row], queue.longest_s(row))
    return np.inf if slot is None else slot.start_s


def _schedule(timetable: Timetable, queue: QueueTable, row: int) -> None:
    """Add the job of a row to a timetable, task by task, where it starts within the horizon."""
    for _ in range(min(int(queue.tasks[row]), _MOST_TASKS)):
        slot = timetable.slot(queue.jobs[row], queue.longest_s(row))
        if slot is None:
            return
        timetable.add(slot)


def _with_planned_start(
    change: Recommendation, case: Case, line: "_Line", starts: _Starts, leases: Sequence[Lease]
) -> Recommendation:
    now = case.snapshot.taken_at
    if isinstance(change.action, Requeue):
        return replace(change, planned_start=now)
    row = line.row_by_job.get(change.job_id)
    if row is None:
        return change
    # Where it stands behind others Slurm's backfill keeps its place; a gang that waits though it could start has none.
    steps_back = isinstance(change.action, SetNice)
    latest_s = starts.behind_s if steps_back else line.first_without_idle_s(case, row)
    planned = now + starts.as_submitted_s if np.isfinite(starts.as_submitted_s) else None
    of_slurm = case.snapshot.jobs_by_id[change.job_id].start_time
    # What was planned at an earlier change of this wait holds: no change moves the start that the next one counts from.
    before = (lease.planned_start for lease in leases)
    return replace(
        change,
        planned_start=earlier_of(planned, None if of_slurm is None else max(now, of_slurm), *before),
        latest_start=now + latest_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The queue as it stands, and as submitted: without the nice values that are ours."""

    queue: QueueTable
    submitted: QueueTable
    row_by_job: Mapping[int, int]  # rows of `submitted`
    place_by_job: Mapping[int, int]  # rows of `queue`
    started: tuple[Job, ...]  # the running jobs that started since the first of the changes

    @classmethod
    def of(cls, case: Case, since: float = np.inf) -> "_Line":
        queue, ours = case.queue, _nice_of_ours(case)
        added = np.array([ours.get(job.job_id, 0) for job in queue.jobs], dtype=np.int64)
        submitted = queue.by_priority(queue.priority + added) if added.any() else queue
        return cls(
            queue=queue,
            submitted=submitted,
            row_by_job={job.job_id: row for row, job in enumerate(submitted.jobs)},
            place_by_job={job.job_id: row for row, job in enumerate(queue.jobs)},
            started=tuple(
                job
                for job in case.snapshot.jobs
                if job.state is JobState.RUNNING and job.start_time is not None and job.start_time > since
            ),
        )

    def let_ahead(self, change: Recommendation) -> list[int]:
        """Return the rows of `submitted` behind a job that go ahead of it once its nice is raised, in order.

        Jobs that our changes put back count where they stand as submitted: they can return there in any round.
        """
        row, place = self.row_by_job.get(change.job_id), self.place_by_job.get(change.job_id)
        if row is None or place is None or not isinstance(change.action, SetNice):
            return []
        lowered = int(self.queue.priority[place]) - (change.action.after - change.action.before)
        submitted = self.submitted
        passing = {self.row_by_job[job_id] for job_id in change.serves if job_id in self.row_by_job}
        outranking = np.flatnonzero((submitted.pool == submitted.pool[row]) & (submitted.priority >= lowered))
        return [other for other in sorted(passing.union(outranking.tolist())) if other > row]

    def first_without_idle_s(self, case: Case, row: int) -> float:
        """Return when a row of `submitted` starts by time limits as the first in line if others take all idle GPUs."""
        taken = replace(case.table, gpus_idle=np.zeros_like(case.table.gpus_idle))
        start = earliest(case.snapshot, taken, case.holdings_by_limits, self.submitted.jobs[row])
        return np.inf if start is None else start - case.snapshot.taken_at

    def would_start(self, row: int, passed: NDArray[np.int64]) -> bool:
        """Return whether a row of `submitted` would start now if the GPUs `passed` `(n_types,)` were idle too."""
        submitted = self.submitted
        pool, gpu_type = int(submitted.pool[row]), int(submitted.gpu_type[row])
        rows = submitted.rows_of(pool)
        ahead = rows[rows <= row]
        idle = submitted.pool_idle[pool] + passed
        types = submitted.gpu_type[ahead]
        if gpu_type == ANY_TYPE:
            return bool(submitted.smallest[ahead].sum(dtype=np.int64) <= idle.sum())
        meets = (types == gpu_type) | (types == ANY_TYPE)
        return bool(submitted.smallest[ahead][meets].sum(dtype=np.int64) <= idle[gpu_type])

    def uncounted(self, job_id: int, serves: Iterable[int]) -> bool:
        """Return whether a job other than `serves` stands before a job and would not as submitted."""
        row, place = self.row_by_job[job_id], self.place_by_job[job_id]
        queue, pool = self.queue, self.queue.pool[place]
        counted = {job_id, *serves}
        return any(
            queue.pool[before] == pool
            and queue.jobs[before].job_id not in counted
            and self.row_by_job[queue.jobs[before].job_id] > row
            and _compete(int(queue.gpu_type[before]), int(queue.gpu_type[place]))
            for before in range(place)
        )


def _compete(gpu_type: int, other: int) -> bool:
    return gpu_type == other or ANY_TYPE in (gpu_type, other)


def _nice_of_ours(case: Case) -> Mapping[int, int]:
    """Map jobs to the part of their nice that an open change added."""
    jobs = case.snapshot.jobs_by_id
    return {
        lease.job_id: lease.action.after - lease.undo.after
        for lease in case.memory.leases
        if isinstance(lease.action, SetNice)
        and isinstance(lease.undo, SetNice)
        and lease.ending is None
        and lease.job_id in jobs
        and jobs[lease.job_id].nice == lease.action.after
    }


def _waiting(case: Case) -> Mapping[int, list[Lease]]:
    """Map pending jobs to their changes that can have delayed them and after which they have not started."""
    leases_by_job: dict[int, list[Lease]] = {}
    for lease in case.memory.leases:
        if lease.start_time is None and lease.added_delay_s > 0.0 and lease.ending is not Ending.NOT_APPLIED:
            job = case.snapshot.jobs_by_id.get(lease.job_id)
            if job is not None and job.is_pending:
                leases_by_job.setdefault(lease.job_id, []).append(lease)
    return leases_by_job


def _watched(case: Case, line: _Line, job_id: int, leases: list[Lease]) -> Watched:
    now = case.snapshot.taken_at
    passed = _passed_by(case, line, job_id, leases)
    would_start = _would_start(case, line, job_id, leases, passed)
    starts_now = would_start and (not passed or _would_start(case, line, job_id, leases, ()))
    would_start_time = earlier_of(*(lease.would_start_time for lease in leases), now if would_start else None)
    late = would_start_time is not None and now - would_start_time >= case.limits.max_added_delay_s / 2
    over = {
        lease.lever: why
        for lease in leases
        if lease.ending is None
        and lease.state is LeaseState.OUT
        and lease.action.can_be_undone
        and (why := _over(case, line, lease, passed, starts_now=starts_now, late=late)) is not None
    }
    return Watched(job_id=job_id, would_start_time=would_start_time, over=over)


def _passed_by(case: Case, line: _Line, job_id: int, leases: list[Lease]) -> tuple[Job, ...]:
    """Return the running jobs that started while a change was out, from places behind the changed job."""
    row = line.row_by_job.get(job_id)
    return (
        ()
        if row is None
        else tuple(job for job in line.started if _passed(job, line, row, leases, case.snapshot.taken_at))
    )


def _would_start(case: Case, line: _Line, job_id: int, leases: list[Lease], passed: Sequence[Job]) -> bool:
    """Return whether a job would start now as submitted, on idle GPUs and those of the jobs `passed`."""
    row = line.row_by_job.get(job_id)
    if row is None:
        return False
    if not line.would_start(row, _gpus_of(passed, line.submitted.gpu_types)):
        return False
    job = case.snapshot.jobs_by_id[job_id]
    for lease in leases:
        if lease.ending is None:
            job = lease.undo.applied_to(job)
    holdings = case.holdings
    table = without(case.table, holdings, np.isin(holdings.job_id, [other.job_id for other in passed]))
    return Fitter(case.snapshot, table).tier_now(job.gang, job.partitions) is not None


def _over(case: Case, line: _Line, lease: Lease, passed: Sequence[Job], *, starts_now: bool, late: bool) -> Over | None:
    """Return why a change no longer serves; None while it does. A delay timer waits although its gang could start."""
    if late:
        return Over.HALF_BOUND
    if lease.lever is not Lever.NICE:
        return None
    if lease.serves and not any(_is_pending(case, job_id) for job_id in lease.serves):
        return Over.SERVED
    if starts_now:
        return Over.WOULD_START
    if any(job.job_id not in lease.serves and (job.start_time or 0.0) > lease.applied_time for job in passed):
        return Over.UNCOUNTED
    job = case.snapshot.jobs_by_id[lease.job_id]
    if lease.job_id in line.row_by_job:
        return Over.UNCOUNTED if line.uncounted(lease.job_id, lease.serves) else None
    # It stands behind all jobs that are planned.
    return Over.UNCOUNTED if competes_now(job, case.snapshot.taken_at) else None


def _is_pending(case: Case, job_id: int) -> bool:
    job = case.snapshot.jobs_by_id.get(job_id)
    return job is not None and job.is_pending


def _passed(job: Job, line: _Line, row: int, leases: list[Lease], now: float) -> bool:
    """Return whether a running job started while a change was out, from a place behind the changed job."""
    submitted, start_time = line.submitted, job.start_time
    if start_time is None or submitted.pool_by_partitions.get(job.partitions) != submitted.pool[row]:
        return False
    priority_now, mine = int(submitted.priority[row]), _tie_break(submitted.jobs[row])
    return any(
        lease.applied_time < start_time <= (lease.ended_time or np.inf)
        and (
            job.priority is None
            or lease.priority is None
            or (-job.priority, *_tie_break(job)) > (-_priority_at(start_time, lease, now, priority_now), *mine)
        )
        for lease in leases
    )


def _priority_at(time: float, lease: Lease, now: float, priority_now: int) -> float:
    """Return the priority that a changed job had as submitted at a time since the change; jobs age at an even pace."""
    return float(np.interp(time, (lease.applied_time, now), (lease.priority or priority_now, priority_now)))


def _tie_break(job: Job) -> tuple[float, int]:
    """Return what decides the order of two jobs of the same priority; the lower goes first."""
    return job.submit_time, job.job_id


def _gpus_of(jobs: Iterable[Job], gpu_types: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the GPUs that jobs hold, `(n_types,)`."""
    held = Counter[str]()
    for job in jobs:
        for gpus in () if job.allocation is None else job.allocation.gpus:
            held[gpus.gpu_type or UNTYPED] += gpus.count
    return np.array([held[name] for name in gpu_types], dtype=np.int64)
