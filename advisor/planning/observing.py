"""Reads leases for how long gangs waited for closer places, and how long our changes delayed each job."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from advisor.domain.actions import Action, SetNice, SetNodeRange, SetSwitches
from advisor.domain.dataclass import dataclass
from advisor.domain.gang import SwitchRequest
from advisor.domain.job import Allocation, Job
from advisor.domain.lease import Ending, Lease, LeaseState
from advisor.domain.memory import Wait
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.planning.head import SOON_S

# Only leases in these states are known to have been in force and unchanged.
_TELLING = frozenset({LeaseState.OUT, LeaseState.RETURNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The tiers for which one pending job has had timers, and the delay that our changes added to it."""

    tiers: frozenset[LocalityTier] = frozenset()
    delayed_s: float = 0.0


NO_PAST = Past()


def timer_tier(action: Action) -> LocalityTier | None:
    """Return the tier for which an action makes a gang wait; None for an action that is no timer."""
    match action:
        case SetSwitches(after=SwitchRequest()):
            return LocalityTier.LEAF
        case SetNodeRange(before=before, after=after) if after.high < before.high:
            return LocalityTier.NODE
        case _:
            return None


def timer_s(lease: Lease) -> float:
    """Return the length of the timer of a lease; infinity where only a revert ends it."""
    if isinstance(lease.action, SetSwitches) and lease.action.after is not None:
        # Slurm starts the wait when it first considers the job after the update, within seconds.
        return lease.action.after.max_wait_s
    return float("inf") if lease.due_time is None else lease.due_time - lease.applied_time


def past_by_job(leases: Iterable[Lease], now: float) -> Mapping[int, Past]:
    """Map jobs to the effect of open and closed leases on them; a timer counts for as long as it ran."""
    past_by_job_id: dict[int, Past] = {}
    for lease in leases:
        tier = timer_tier(lease.action)
        if lease.ending is Ending.NOT_APPLIED or (tier is None and not _steps_back(lease.action)):
            continue
        out_s = max(0.0, (now if lease.ended_time is None else lease.ended_time) - lease.applied_time)
        before = past_by_job_id.get(lease.job_id, NO_PAST)
        past_by_job_id[lease.job_id] = Past(
            tiers=before.tiers if tier is None or _cut_short(lease) else before.tiers | {tier},
            delayed_s=before.delayed_s + (min(out_s, timer_s(lease)) if tier is LocalityTier.LEAF else out_s),
        )
    return past_by_job_id


def started_since(job: Job, since: float, snapshot: Snapshot) -> bool:
    """Return whether a job started between an earlier snapshot and this one; each start lies in one interval only.

    Slurm reports whole seconds: a start in the second of a snapshot counts for the next interval.
    """
    if job.allocation is None or job.start_time is None:
        return False
    return math.floor(since) <= job.start_time < math.floor(snapshot.taken_at)


def observed(snapshot: Snapshot, since: float, leases: Sequence[Lease]) -> tuple[Wait, ...]:
    """Return the waits of the gangs that started after an instant, from their timers.

    A gang without a timer of ours declined no place, so it has no wait. Neither has one whose timers had all ended long
    before it started: it stood too far from the head of the line to decline a place.
    """
    leases_by_job: dict[int, list[Lease]] = {}
    for lease in leases:
        leases_by_job.setdefault(lease.job_id, []).append(lease)
    waits: list[Wait] = []
    for job in snapshot.jobs:
        held, start_time = job.allocation, job.start_time
        if job.job_id not in leases_by_job or not started_since(job, since, snapshot):
            continue
        if held is not None and start_time is not None and _gpus(job, held) >= 2:
            waits += _waits(job, held, start_time, leases_by_job[job.job_id], snapshot)
    return tuple(sorted(waits, key=lambda wait: wait.ended_time))


def still_waiting(snapshot: Snapshot, leases: Iterable[Lease]) -> Iterator[Wait]:
    """Yield the waits of pending gangs up to now, from their open timers."""
    for lease in leases:
        tier, job = timer_tier(lease.action), snapshot.jobs_by_id.get(lease.job_id)
        if tier is None or lease.state is not LeaseState.OUT or lease.ending is not None or job is None:
            continue
        gpus, waited_s = job.gang.gpu_count or 0, snapshot.taken_at - lease.applied_time
        if job.is_pending and gpus >= 2 and waited_s > 0.0:
            lasted_s = min(waited_s, timer_s(lease))
            yield Wait(gpus=gpus, tier=tier, waited_s=lasted_s, got=False, ended_time=snapshot.taken_at)


def gave_up_time(lease: Lease, start_time: float | None, now: float) -> float | None:
    """Return when a timer ended without a place for its gang; None if it got one, was cut short, or still waits.

    `start_time` is when the job started, None if that was not seen.
    """
    tier, length_s = timer_tier(lease.action), timer_s(lease)
    if tier is None or lease.state not in _TELLING or lease.ending is Ending.NOT_APPLIED:
        return None
    expired_time = lease.applied_time + length_s
    if tier is LocalityTier.NODE and lease.ending is Ending.TAKEN_BACK and lease.ended_time is not None:
        return lease.ended_time if lease.ended_time >= expired_time else None
    waited_until = min(time for time in (lease.ended_time, start_time, now) if time is not None)
    return expired_time if tier is LocalityTier.LEAF and waited_until >= expired_time else None


def _waits(
    job: Job, held: Allocation, start_time: float, leases: Sequence[Lease], snapshot: Snapshot
) -> Iterator[Wait]:
    timers = [
        (lease, tier, until)
        for lease in leases
        if (tier := timer_tier(lease.action)) is not None
        and lease.applied_time <= start_time
        and (until := _until(lease, tier, start_time)) is not None
    ]
    # A gang that starts long after its last timer waited for its turn in the line, not for a place.
    at_head = start_time - max((until for *_, until in timers), default=start_time) <= SOON_S
    for lease, tier, until in timers:
        got = start_time < until
        # Slurm would not have started it there: the request was changed unseen.
        counts = _sits_there(lease.action, held, snapshot) if got else at_head
        if counts:
            waited_s = min(start_time, until) - lease.applied_time
            yield Wait(gpus=_gpus(job, held), tier=tier, waited_s=waited_s, got=got, ended_time=start_time)


def _until(lease: Lease, tier: LocalityTier, start_time: float) -> float | None:
    """Return when the timer of a lease ended or would have; None if it was not in force for this start."""
    ended_time = lease.ended_time
    if lease.state not in _TELLING or lease.ending is Ending.NOT_APPLIED:
        return None
    if ended_time is None:
        ended_time = float("inf")
    elif lease.ending is Ending.NO_LONGER_PENDING:
        if ended_time < start_time:
            return None  # the timer was for an earlier start of a requeued job
        ended_time = float("inf")
    # A node range holds until it is reverted, however long it has been due.
    length_s = timer_s(lease) if tier is LocalityTier.LEAF else float("inf")
    return min(ended_time, lease.applied_time + length_s)


def _cut_short(lease: Lease) -> bool:
    """Return whether a person reverted a node range before it was due; Slurm never renews a wait for switches."""
    early = lease.due_time is not None and lease.ended_time is not None and lease.ended_time < lease.due_time
    return early and lease.ending in {Ending.TAKEN_BACK, Ending.REVERTED}


def _steps_back(action: Action) -> bool:
    return isinstance(action, SetNice) and action.after > action.before


def _sits_there(action: Action, held: Allocation, snapshot: Snapshot) -> bool:
    """Return whether a gang runs on the place that its timer asked for."""
    if isinstance(action, SetNodeRange):
        return len(held.nodes) <= action.after.high
    return snapshot.topology.tier_of(held.nodes) <= LocalityTier.LEAF


def _gpus(job: Job, held: Allocation) -> int:
    """Return the GPUs of a gang, by its request if known, else by its allocation."""
    return job.gang.gpu_count or sum(gpu.count for gpu in held.gpus)
