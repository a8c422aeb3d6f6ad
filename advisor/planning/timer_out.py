"""Explains the open delay timers of one job as if they were chosen now."""

from dataclasses import dataclass, replace

from advisor.domain.actions import SetNodeRange
from advisor.domain.forecast import Forecasts
from advisor.domain.lease import Lease, LeaseState
from advisor.domain.memory import Memory, Wait
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.planning.case import Case
from advisor.planning.observing import timer_s, timer_tier
from advisor.planning.timers import Timer, closer_places, timer_of
from advisor.settings import Limits, PlanningSettings

_IN_FORCE = frozenset({LeaseState.OUT, LeaseState.RETURNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerOut:
    """A timer of ours that makes a pending job wait for a place: since when, for how long, and how much is left of it.

    `nodes` is the number of nodes that it waits for, None for one leaf switch. `timer` is the timer as it would
    be chosen now, None where the job would no longer wait for that place.
    """

    nodes: int | None
    began_time: float
    length_s: float
    left_s: float
    timer: Timer | None

    @property
    def ends_time(self) -> float:
        """Return the end of the wait."""
        return self.began_time + self.length_s


def timers_out(
    snapshot: Snapshot,
    job_id: int,
    settings: PlanningSettings,
    limits: Limits,
    forecasts: Forecasts,
    memory: Memory,
) -> tuple[TimerOut, ...]:
    """Return the timers that are out for a pending job by its open leases, in the order in which they began."""
    job = snapshot.jobs_by_id.get(job_id)
    if job is None or not job.is_pending:
        return ()
    out = [
        (lease, tier)
        for lease in memory.leases
        if lease.job_id == job_id and lease.ending is None and lease.state in _IN_FORCE
        if (tier := timer_tier(lease.action)) is not None
    ]
    out.sort(key=lambda lease_and_tier: lease_and_tier[0].applied_time)
    return tuple(_explained(snapshot, lease, tier, settings, limits, forecasts, memory.waits) for lease, tier in out)


def _explained(
    snapshot: Snapshot,
    lease: Lease,
    tier: LocalityTier,
    settings: PlanningSettings,
    limits: Limits,
    forecasts: Forecasts,
    waits: tuple[Wait, ...],
) -> TimerOut:
    length_s = timer_s(lease)
    return TimerOut(
        nodes=lease.action.after.high if isinstance(lease.action, SetNodeRange) else None,
        began_time=lease.applied_time,
        length_s=length_s,
        left_s=lease.applied_time + length_s - snapshot.taken_at,
        timer=_timer(snapshot, lease, tier, settings, limits, forecasts, waits),
    )


def _timer(
    snapshot: Snapshot,
    lease: Lease,
    tier: LocalityTier,
    settings: PlanningSettings,
    limits: Limits,
    forecasts: Forecasts,
    waits: tuple[Wait, ...],
) -> Timer | None:
    """Return the timer with its present reasons; None where the job would no longer wait for that place."""
    asked = lease.undo.applied_to(snapshot.jobs_by_id[lease.job_id])
    before = replace(snapshot, jobs=tuple(asked if job.job_id == lease.job_id else job for job in snapshot.jobs))
    case = Case(snapshot=before, settings=settings, limits=limits, forecasts=forecasts, memory=Memory(waits=waits))
    queue = case.queue
    row = next((row for row, job in enumerate(queue.jobs) if job.job_id == lease.job_id), None)
    if row is None:
        return None
    fit = case.fitter.fit_in_service(asked.gang, asked.partitions)
    place = next((place for place in closer_places(case, asked, fit, case.fitter) if place.tier is tier), None)
    return None if place is None else timer_of(case, queue, row, place, timer_s(lease))
