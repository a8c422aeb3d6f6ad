"""Adds up the delay that changes have caused, from open and ended leases, for the bounds that span cycles.

A change is booked with the largest delay that it can cause, since it is unknown when the job would have started without
it. Two corrections are made: a change that is reverted early is booked with less delay, and one reverted late with
more; and a job that started was not delayed for longer than from the change to its start.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from advisor.domain.actions import SetNodeRange
from advisor.domain.lease import Ending, Lease, LeaseState
from advisor.settings import Limits

_OBJECTIONS = frozenset({Ending.REVERTED, Ending.OVERRULED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The seconds of delay booked by job, and by user and account within the window, and the jobs to leave alone.

    `resting` names jobs that were changed lately, `objected` those whose change a person reverted or overruled.
    """

    delay_s_by_job: Mapping[int, float] = field(default_factory=dict)
    delay_s_by_user: Mapping[str, float] = field(default_factory=dict)
    delay_s_by_account: Mapping[str, float] = field(default_factory=dict)
    resting: frozenset[int] = frozenset()
    objected: frozenset[int] = frozenset()


NOTHING_BOOKED = Ledger()


def ledger_of(leases: Iterable[Lease], now: float, limits: Limits) -> Ledger:
    """Add up leases; each counts for its user and account until its end is longer ago than the fairness window.

    Leases without a user, or without an account, are not added up.
    """
    by_job: dict[int, float] = {}
    by_user: dict[str, float] = {}
    by_account: dict[str, float] = {}
    resting: set[int] = set()
    objected: set[int] = set()
    for lease in leases:
        if now - _stirred_time(lease) < limits.cooldown_s:
            resting.add(lease.job_id)
        if person_objected(lease):
            objected.add(lease.job_id)
        delay_s = booked_s(lease, now)
        if delay_s <= 0.0:
            continue
        by_job[lease.job_id] = by_job.get(lease.job_id, 0.0) + delay_s
        if lease.ended_time is None or now - lease.ended_time < limits.fairness_window_s:
            by_user[lease.user] = by_user.get(lease.user, 0.0) + delay_s
            by_account[lease.account] = by_account.get(lease.account, 0.0) + delay_s
    by_user.pop("", None)
    by_account.pop("", None)
    return Ledger(
        delay_s_by_job=by_job,
        delay_s_by_user=by_user,
        delay_s_by_account=by_account,
        resting=frozenset(resting),
        objected=frozenset(objected),
    )


def booked_s(lease: Lease, now: float) -> float:
    """Return the largest delay, in seconds, that a change has caused or can still cause."""
    if lease.ending is Ending.NOT_APPLIED or lease.added_delay_s <= 0.0:
        return 0.0
    ended_time = lease.ended_time
    if ended_time is not None and lease.ending is Ending.NO_LONGER_PENDING and lease.earlier is None:
        return min(lease.added_delay_s, max(0.0, ended_time - lease.applied_time))
    if lease.due_time is None:
        return lease.added_delay_s
    until = ended_time if lease.overruled_time is None else lease.overruled_time
    late_s = max(0.0, now - lease.due_time) if until is None else until - lease.due_time
    return max(0.0, lease.added_delay_s + late_s)


def person_objected(lease: Lease) -> bool:
    """Return whether a person reverted a change, asked for that, or set the field to another value."""
    return lease.by_person or lease.state is LeaseState.HANDS_OFF or lease.ending in _OBJECTIONS


def _stirred_time(lease: Lease) -> float:
    """Return the time of the last update sent for a lease; minus infinity for a delay timer that has expired.

    The timer of the next tier starts when that of the node tier ends; otherwise the job would start spread in between.
    Together they are one change, and the cooldown starts with the last of them. A job has each timer once.
    """
    ended_time = lease.ended_time
    if ended_time is None or lease.ending is Ending.NO_LONGER_PENDING:
        return lease.applied_time
    due = lease.due_time is not None and ended_time >= lease.due_time
    if due and lease.ending is Ending.TAKEN_BACK and isinstance(lease.action, SetNodeRange):
        return float("-inf")
    return max(lease.applied_time, ended_time)
