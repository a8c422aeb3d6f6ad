"""Proposes to lift a job that our changes have delayed above all others that want its GPUs."""

from collections.abc import Iterator, Sequence
from dataclasses import field

import numpy as np

from advisor.domain.actions import Reason, SetNice
from advisor.domain.dataclass import dataclass
from advisor.domain.mark import marked
from advisor.domain.plan import UNPUBLISHED, Expected, Facts, Kind, Recommendation, clipped
from advisor.features.queue import QueueTable
from advisor.planning.case import Case
from advisor.planning.earliest import earliest_by_limits
from advisor.planning.lift_gain import SHARES


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedByAdvice(Facts):
    """How long a job has waited since it would have started, how long it can as the first in line, and the bound."""

    reason = Reason.DELAYED_BY_ADVICE

    realised_delay_s: float
    first_in_line_s: float = field(metadata=UNPUBLISHED)
    bound_s: float
    jobs_passed: int
    priority: int
    priority_after: int


def recommendations(case: Case, _so_far: Sequence[Recommendation] = ()) -> Iterator[Recommendation]:
    """Propose one lift for each delayed job that could pass half of its bound and does not stand first already."""
    lifted = _lifted_when_late(case)
    for job_id in sorted(case.permits.late_s.keys() - lifted):
        yield from _lift(case, job_id)


def _lifted_when_late(case: Case) -> frozenset[int]:
    """Return the late jobs whose nice is below that of their users by an open change, made since they are late."""
    now, late_s = case.snapshot.taken_at, case.permits.late_s
    return frozenset(
        lease.job_id
        for lease in case.memory.leases
        if isinstance(lease.action, SetNice)
        and isinstance(lease.undo, SetNice)
        and lease.ending is None
        and lease.action.after < lease.undo.after
        and lease.applied_time >= now - late_s.get(lease.job_id, 0.0)
    )


def _lift(case: Case, job_id: int) -> Iterator[Recommendation]:
    queue = case.queue
    row = next((row for row, job in enumerate(queue.jobs) if job.job_id == job_id), None)
    if row is None:
        return
    pool = int(queue.pool[row])
    mine = int(queue.priority[row])
    others = queue.others[pool].priority
    ahead = np.r_[queue.priority[queue.rows_of(pool)], others]
    job, highest = queue.jobs[row], int(ahead.max())
    after = max(case.limits.nice_min, -marked(highest + 1 - mine - job.nice))
    late_s, first_in_line_s = case.permits.late_s[job_id], _first_in_line_s(case, row)
    could_stay_within_half = late_s + first_in_line_s <= case.limits.max_added_delay_s / 2
    if could_stay_within_half or row == queue.rows_of(pool)[0] or after >= job.nice:
        return
    yield Recommendation(
        kind=Kind.REORDER,
        action=SetNice(job_id=job_id, before=job.nice, after=after),
        facts=DelayedByAdvice(
            realised_delay_s=late_s,
            first_in_line_s=first_in_line_s,
            bound_s=case.limits.max_added_delay_s,
            jobs_passed=int((ahead > mine).sum()),
            priority=mine,
            priority_after=mine + job.nice - after,
        ),
        # As for other lifts, a share of the work that it passes; at most what it has lost.
        expected=Expected(
            saved_s=clipped(SHARES.mean * _work_ahead_s(queue, row), 0.0, late_s),
            saved_s_low=0.0,
            saved_s_high=late_s,
            jobs_helped=1,
            added_delay_max_s=0.0,
        ),
    )


def _work_ahead_s(queue: QueueTable, row: int) -> float:
    """Return how long all GPUs of a pool work on the jobs before a row whose run times are known."""
    rows = queue.rows_of(int(queue.pool[row]))
    ahead = rows[(queue.priority[rows] > queue.priority[row]) & np.isfinite(queue.run.expected_s[rows])]
    capacity = float(queue.pool_capacity[queue.pool[row]].sum())
    return float((queue.width[ahead] * queue.run.expected_s[ahead]).sum()) / max(capacity, 1.0)


def _first_in_line_s(case: Case, row: int) -> float:
    """Return for how long a job would wait as the first in line, by the time limits of running jobs."""
    start_time = earliest_by_limits(case.snapshot, case.table, case.queue.jobs[row])
    return float("inf") if start_time is None else start_time - case.snapshot.taken_at
