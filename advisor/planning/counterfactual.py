"""Compares jobs that a change can delay with their start as submitted, and finds the changes to revert for that.

As submitted, a job stands at the priority of its user's own fields, and the jobs that started while the change was out,
from places behind it, have not started. Its planned start is that of a schedule by time limits, node by node. In each
later round it would start once what it asks for fits beside the jobs ahead of it, whose GPUs count as interchangeable.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job, JobState
from advisor.domain.lease import Ending, Lease, LeaseState, earlier_of
from advisor.domain.plan import Plan, Recommendation
from advisor.domain.units import DAY_S
from advisor.features.capacity import Fitter
from advisor.features.nodes import UNTYPED
from advisor.features.queue import ANY_TYPE, QueueTable
from advisor.planning.case import Case
from advisor.planning.earliest import latest_start_s, without
from advisor.planning.timetable import Timetable

# The tasks of an array for which Slurm's backfill keeps places: the default of bf_max_job_array_resv.
_MOST_TASKS: Final = 20
# A start further ahead is unknown.
_HORIZON_S: Final = 30 * DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A job that still waits after a change: since when it would run as submitted, and the levers to revert.

    `would_start_time` is None while it would not have started either. Once it has waited half of its bound longer, all
    of its changes are `over`.
    """

    job_id: int
    would_start_time: float | None
    over: frozenset[Lever]


def watched(case: Case, leases: Sequence[Lease] | None = None) -> tuple[Watched, ...]:
    """Compare each changed job that still waits with its start as submitted, by job id; None takes all changes."""
    leases_by_job = _waiting(case, leases)
    if not leases_by_job:
        return ()
    line = _Line.of(case, since=min(lease.applied_time for leases in leases_by_job.values() for lease in leases))
    return tuple(_watched(case, line, job_id, leases_by_job[job_id]) for job_id in sorted(leases_by_job))


def with_planned_starts(plan: Plan, case: Case) -> Plan:
    """Return a plan in which each change that can delay its job states the planned and the latest start.

    Both are by time limits. The planned start is that of the job as submitted, if no other job arrives: slurmctld's own
    where that is earlier. The latest start of a gang that waits for a place is as the first in line if other jobs take
    all idle GPUs.
    """
    delaying = {change.job_id: change for change in plan.recommendations if change.expected.added_delay_max_s > 0.0}
    if not delaying:
        return plan
    line, leases_by_job = _Line.of(case), _waiting(case)
    starts_s = _starts_by_limits_s(case, line, frozenset(delaying))
    return Plan(
        recommendations=tuple(
            change
            if change.job_id not in delaying
            else _with_planned_start(
                change, case, line, starts_s.get(change.job_id, np.inf), leases_by_job.get(change.job_id, ())
            )
            for change in plan.recommendations
        )
    )


def _starts_by_limits_s(case: Case, line: "_Line", job_ids: frozenset[int]) -> Mapping[int, float]:
    """Map jobs to their starts by time limits as submitted, in seconds from the snapshot.

    Slurm's backfill keeps no place for a job beyond its depth, so that no start is known there. Jobs that keep none of
    `job_ids` waiting, behind it or on nodes apart from its own, are left out.
    """
    submitted, timetable = line.submitted, case.timetable(_HORIZON_S)
    reached, ahead = np.zeros(len(case.table.names), dtype=np.bool_), list[int]()
    for row in reversed([row for rows in submitted.rows_by_pool() for row in rows.tolist()]):
        job = submitted.jobs[row]
        if job.job_id in case.tested and (job.job_id in job_ids or (reached & timetable.nodes(job)).any()):
            reached |= timetable.nodes(job)
            ahead.append(row)
    starts_s: dict[int, float] = {}
    for row in reversed(ahead):
        job_id = submitted.jobs[row].job_id
        if job_id in job_ids:
            starts_s[job_id] = _start_s(timetable, submitted, row)
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
    change: Recommendation, case: Case, line: "_Line", start_s: float, leases: Sequence[Lease]
) -> Recommendation:
    now = case.snapshot.taken_at
    row = line.row_by_job.get(change.job_id)
    if row is None:
        return change
    planned = now + start_s if np.isfinite(start_s) else None
    of_slurm = case.snapshot.jobs_by_id[change.job_id].start_time
    # What was planned at an earlier change of this wait holds: no change moves the start that the next one counts from.
    before = (lease.planned_start for lease in leases)
    return replace(
        change,
        planned_start=earlier_of(planned, None if of_slurm is None else max(now, of_slurm), *before),
        latest_start=now + latest_start_s(case.snapshot, case.table, case.holdings_by_limits, line.submitted.jobs[row]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The queue as submitted: without the nice values that are ours."""

    submitted: QueueTable
    row_by_job: Mapping[int, int]  # rows of `submitted`
    started: tuple[Job, ...]  # the running jobs that started since the first of the changes

    @classmethod
    def of(cls, case: Case, since: float = np.inf) -> "_Line":
        queue, ours = case.queue, case.nice_of_ours
        added = np.array([ours.get(job.job_id, 0) for job in queue.jobs], dtype=np.int64)
        submitted = queue.by_priority(queue.priority + added) if added.any() else queue
        return cls(
            submitted=submitted,
            row_by_job={job.job_id: row for row, job in enumerate(submitted.jobs)},
            started=tuple(
                job
                for job in case.snapshot.jobs
                if job.state is JobState.RUNNING and job.start_time is not None and job.start_time > since
            ),
        )

    def would_start(self, row: int, passed: NDArray[np.int64]) -> bool:
        """Return whether a row of `submitted` would start now if the GPUs `passed` `(n_types,)` were idle too."""
        submitted = self.submitted
        pool, gpu_type = int(submitted.pool[row]), int(submitted.gpu_type[row])
        rows = submitted.rows_of(pool)
        ahead = rows[rows <= row]
        idle = submitted.pool_idle[pool] + passed
        types = submitted.gpu_type[ahead]
        if gpu_type == ANY_TYPE:
            return bool(submitted.gpus[ahead].sum(dtype=np.int64) <= idle.sum())
        meets = (types == gpu_type) | (types == ANY_TYPE)
        return bool(submitted.gpus[ahead][meets].sum(dtype=np.int64) <= idle[gpu_type])


def _waiting(case: Case, leases: Sequence[Lease] | None = None) -> Mapping[int, list[Lease]]:
    """Map pending jobs to their changes that can have delayed them and after which they have not started."""
    leases_by_job: dict[int, list[Lease]] = {}
    for lease in case.memory.leases if leases is None else leases:
        if lease.start_time is None and lease.added_delay_s > 0.0 and lease.ending is not Ending.NOT_APPLIED:
            job = case.snapshot.jobs_by_id.get(lease.job_id)
            if job is not None and job.is_pending:
                leases_by_job.setdefault(lease.job_id, []).append(lease)
    return leases_by_job


def _watched(case: Case, line: _Line, job_id: int, leases: list[Lease]) -> Watched:
    now = case.snapshot.taken_at
    passed = _passed_by(case, line, job_id, leases)
    would_start = _would_start(case, line, job_id, leases, passed)
    would_start_time = earlier_of(*(lease.would_start_time for lease in leases), now if would_start else None)
    late = would_start_time is not None and now - would_start_time >= case.limits.max_added_delay_s / 2
    out = (lease for lease in leases if lease.ending is None and lease.state is LeaseState.OUT)
    over = frozenset(lease.lever for lease in out if late)
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
