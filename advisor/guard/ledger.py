"""Adds up the delay that changes have caused, from open and ended leases, for the bounds that span cycles.

What a job has waited since it would have started as submitted is booked as realised, until it starts. An open change
is also booked with what it is expected to add to that. A gang that got the place it waited for is expected to run
faster by at least as long, and no delay is booked.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field

from advisor.domain.actions import SetNice, SetNodeRange
from advisor.domain.dataclass import dataclass
from advisor.domain.lease import Ending, Lease, LeaseState, gave_place
from advisor.settings import Limits

_OBJECTIONS = frozenset({Ending.REVERTED, Ending.OVERRULED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The seconds of delay booked by job, and by user and account within the window, and the jobs to leave alone.

    `realised_s_by_job` is the part that has been waited already, of the jobs that still wait.
    `resting` names jobs that were changed lately, `objected` those whose change a person reverted or overruled,
    `gave_place` those that went to the place of a smaller job. `named_by_job` counts how often nodes were named for a
    job.
    """

    delay_s_by_job: Mapping[int, float] = field(default_factory=dict)
    delay_s_by_user: Mapping[str, float] = field(default_factory=dict)
    delay_s_by_account: Mapping[str, float] = field(default_factory=dict)
    realised_s_by_job: Mapping[int, float] = field(default_factory=dict)
    resting: frozenset[int] = frozenset()
    objected: frozenset[int] = frozenset()
    gave_place: frozenset[int] = frozenset()
    named_by_job: Mapping[int, int] = field(default_factory=dict)


NOTHING_BOOKED = Ledger()


def ledger_of(leases: Iterable[Lease], now: float, limits: Limits, overdue: Collection[int] = frozenset()) -> Ledger:
    """Add up leases; each counts for its user and account until its end is longer ago than the fairness window.

    Leases without a user, or without an account, are not added up. An overdue job does not rest because its lift was
    taken back, as at the end of the daemon, unless it lost the lift by a request for more.
    """
    known = tuple(leases)
    by_job: dict[int, float] = {}
    by_user: dict[str, float] = {}
    by_account: dict[str, float] = {}
    realised: dict[int, float] = {}
    for wait in _waits(known):
        last = wait[-1]
        if all(lease.is_paid_back for lease in wait):
            continue
        delay_s = booked_s(wait, now)
        if delay_s <= 0.0:
            continue
        by_job[last.job_id] = by_job.get(last.job_id, 0.0) + delay_s
        if last.start_time is None:
            realised[last.job_id] = realised_s(wait, now)
        if last.start_time is None or now - last.start_time < limits.fairness_window_s:
            by_user[last.user] = by_user.get(last.user, 0.0) + delay_s
            by_account[last.account] = by_account.get(last.account, 0.0) + delay_s
    by_user.pop("", None)
    by_account.pop("", None)
    return Ledger(
        delay_s_by_job=by_job,
        delay_s_by_user=by_user,
        delay_s_by_account=by_account,
        realised_s_by_job=realised,
        resting=frozenset(
            lease.job_id
            for lease in known
            if now - _last_change_time(lease) < limits.cooldown_s
            and not (lease.job_id in overdue and _lift_taken_back(lease))
        ),
        objected=frozenset(lease.job_id for lease in known if person_objected(lease)),
        gave_place=gave_place(known),
        named_by_job=Counter(
            lease.job_id for lease in known if lease.action.reserves_nodes and lease.ending is not Ending.NOT_APPLIED
        ),
    )


def _waits(leases: Iterable[Lease]) -> Iterable[Sequence[Lease]]:
    """Group the changes that can have delayed a job by the start that they were made before."""
    by_start: dict[tuple[int, float | None], list[Lease]] = {}
    for lease in leases:
        if lease.ending is not Ending.NOT_APPLIED and lease.added_delay_s > 0.0:
            by_start.setdefault((lease.job_id, lease.start_time), []).append(lease)
    return by_start.values()


def booked_s(wait: Sequence[Lease], now: float) -> float:
    """Return the delay, in seconds, that the changes of one wait have caused, and what open ones can still add."""
    expected_s = sum(
        max(0.0, lease.added_delay_s - _realised_s(lease, now, since=lease.applied_time))
        for lease in wait
        if lease.ending is None and lease.overruled_time is None
    )
    return realised_s(wait, now) + expected_s


def realised_s(wait: Sequence[Lease], now: float) -> float:
    """Return for how long a job waits, or did wait, since it would have started without the changes of one wait."""
    since = min(lease.applied_time for lease in wait)
    return max(_realised_s(lease, now, since=since) for lease in wait)


def _realised_s(lease: Lease, now: float, *, since: float) -> float:
    """Return the realised delay of one change, counted from `since`."""
    waited_until = now if lease.start_time is None else lease.start_time
    until = waited_until if lease.overruled_time is None else min(waited_until, lease.overruled_time)
    if lease.would_start_time is None:
        return 0.0
    return max(0.0, until - max(since, lease.would_start_time))


def person_objected(lease: Lease) -> bool:
    """Return whether a person reverted a change, asked for that, or set the field to another value."""
    return lease.by_person or lease.state is LeaseState.HANDS_OFF or lease.ending in _OBJECTIONS


def _lift_taken_back(lease: Lease) -> bool:
    return isinstance(lease.action, SetNice) and lease.ending is Ending.TAKEN_BACK and not lease.lost


def _last_change_time(lease: Lease) -> float:
    """Return the time of the last update sent for a lease; minus infinity for an expired delay timer and an open lift.

    The timer of the next tier starts when that of the node tier ends; otherwise the job would start spread in between.
    Together they are one change, and the cooldown starts with the last of them. A job has each timer once. A lifted
    gang can start at once, so that a timer which had to wait for the cooldown would come too late.
    """
    ended_time = lease.ended_time
    if isinstance(lease.action, SetNice) and ended_time is None and lease.state is LeaseState.OUT:
        return float("-inf")
    if ended_time is None or lease.ending is Ending.NO_LONGER_PENDING:
        return lease.applied_time
    due = lease.due_time is not None and ended_time >= lease.due_time
    if due and lease.ending is Ending.TAKEN_BACK and isinstance(lease.action, SetNodeRange):
        return float("-inf")
    return max(lease.applied_time, ended_time)
