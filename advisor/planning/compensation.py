"""Proposes to lift a job that our changes have delayed by half of its bound above all others that want its GPUs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.domain.actions import Reason, SetNice
from advisor.domain.facts import Facts
from advisor.domain.mark import marked
from advisor.domain.plan import Expected, Kind, Recommendation
from advisor.planning.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedByAdvice(Facts):
    """For how long a job has waited since it would have started, and the bound of which that is more than half."""

    reason = Reason.DELAYED_BY_ADVICE

    realised_delay_s: float
    bound_s: float
    jobs_passed: int
    priority: int
    priority_after: int


def recommendations(case: Case, _so_far: Sequence[Recommendation] = ()) -> Iterator[Recommendation]:
    """Propose one lift for each delayed job that does not stand first already."""
    lifted = _lifted(case)
    for job_id in sorted(case.permits.overdue_s.keys() - lifted):
        yield from _lift(case, job_id)


def _lifted(case: Case) -> frozenset[int]:
    """Return the jobs whose nice is below that of their users by an open change."""
    return frozenset(
        lease.job_id
        for lease in case.memory.leases
        if isinstance(lease.action, SetNice)
        and isinstance(lease.undo, SetNice)
        and lease.ending is None
        and lease.action.after < lease.undo.after
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
    if row == queue.rows_of(pool)[0] or after >= job.nice:
        return
    yield Recommendation(
        kind=Kind.REORDER,
        action=SetNice(job_id=job_id, before=job.nice, after=after),
        facts=DelayedByAdvice(
            realised_delay_s=case.permits.overdue_s[job_id],
            bound_s=case.limits.max_added_delay_s,
            jobs_passed=int((ahead > mine).sum()),
            priority=mine,
            priority_after=mine + job.nice - after,
        ),
        expected=Expected(
            saved_s_low=0.0, saved_s_high=case.permits.overdue_s[job_id], jobs_helped=1, added_delay_max_s=0.0
        ),
    )
