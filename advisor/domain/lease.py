"""Defines leases: changes to jobs, until they are reverted or no longer matter."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final

from advisor.domain.actions import (
    Action,
    Lever,
    SetNice,
    SetNodeRange,
    SetSwitches,
    SetTimeMin,
    exchanged_with,
    gives_place,
)
from advisor.domain.dataclass import dataclass
from advisor.domain.gang import SwitchRequest
from advisor.domain.job import Job
from advisor.domain.request import Request, request_of

# Slurm changes the CPUs and the memory of a job together with these.
_SIZES: Final = (Lever.GPU_COUNT, Lever.NODE_RANGE)


class LeaseState(StrEnum):
    """The state of a change."""

    INTENDED = "intended"  # recorded; it is not known yet whether it took effect
    OUT = "out"
    RETURNING = "returning"  # the revert is sent; it is not known yet whether that took effect
    HANDS_OFF = "hands_off"  # somebody else changed the field since, so the job is left alone


class Ending(StrEnum):
    """How a lease ended."""

    NOT_APPLIED = "not_applied"
    TAKEN_BACK = "taken_back"  # reverted when due
    NO_LONGER_PENDING = "no_longer_pending"
    REVERTED = "reverted"  # a person had it taken back, so the job is left alone
    OVERRULED = "overruled"  # somebody else had changed the field, and the job is no longer pending


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A change to one field of one job: the action as sent, when, and when it is due to be reverted.

    `undo` restores the user's value, from before our first change to the field. `due_time` None means that the change
    ends by itself or can stay. `ending` and `ended_time` are None until the lease has ended. `added_delay_s` is the
    delay that the change is expected to cause at most, together with earlier ones on the same field. `by_person` is
    whether a person asked to revert it. `overruled_time` is when somebody else's change to the field was observed.

    `priority` is that of the job as submitted when it was changed; None if unknown. `planned_start` is when the job
    would have started as submitted, as planned when it was changed; None if unknown. `would_start_time` is when it was
    first seen that as submitted it would have started. `start_time` is when it was seen to have started after the
    change, or to have left the queue. `request` is what the job asked for as its user wrote it; None if unknown, as in
    journals of earlier versions. `lost` is why the job has lost the change since, in plain words; "" if it has not.
    """

    action: Action
    undo: Action
    applied_time: float
    due_time: float | None = None
    state: LeaseState = LeaseState.INTENDED
    ending: Ending | None = None
    ended_time: float | None = None
    user: str = ""
    account: str = ""
    added_delay_s: float = 0.0
    by_person: bool = False
    overruled_time: float | None = None
    priority: int | None = None
    planned_start: float | None = None
    would_start_time: float | None = None
    start_time: float | None = None
    request: Request | None = None
    lost: str = ""

    def __post_init__(self) -> None:
        if self.action.lever is not self.undo.lever or self.action.job_id != self.undo.job_id:
            raise ValueError(f"the lease of job {self.job_id} is taken back in another field or job")
        if (self.ending is None) is not (self.ended_time is None):
            raise ValueError(f"the lease of job {self.job_id} has ended in part")

    @property
    def job_id(self) -> int:
        """The job that was changed."""
        return self.action.job_id

    @property
    def lever(self) -> Lever:
        """The field that was changed; a job has one lease per field."""
        return self.action.lever

    @property
    def exchanged_with(self) -> int | None:
        """The job with which this one changed places; None if it did not."""
        return exchanged_with(self.action)

    @property
    def gives_place(self) -> bool:
        """Whether the job went to the place of a smaller one."""
        return gives_place(self.action)

    @property
    def is_lift(self) -> bool:
        """Whether the job goes ahead of others, without changing places with one of them."""
        return isinstance(self.action, SetNice) and self.action.lifts and self.exchanged_with is None

    @property
    def favours(self) -> bool:
        """Whether the job starts sooner by the change at the cost of others, so that it holds for this request only."""
        match self.action, self.undo:
            case SetNice(after=ours), SetNice(after=users):
                return ours < users
            case action, _:
                return isinstance(action, SetTimeMin) and action.after is not None

    @property
    def is_paid_back(self) -> bool:
        """Whether its job got the place it waited for: the wait was no longer than what that place saves it."""
        if self.start_time is None or self.ending is not Ending.NO_LONGER_PENDING:
            return False
        match self.action:
            case SetNodeRange(before=before, after=after):
                return after.high < before.high and (self.due_time is None or self.start_time < self.due_time)
            case SetSwitches(after=SwitchRequest() as asked):
                return self.start_time < self.applied_time + asked.max_wait_s
            case _:
                return False

    @property
    def is_in_effect(self) -> bool:
        """Whether the job is known to hold the value of the change, which is ours to revert."""
        return self.ending is None and self.state in (LeaseState.OUT, LeaseState.RETURNING)

    @property
    def blocks_other_changes(self) -> bool:
        """Whether the job gets no other change: this one is unsettled, has to be reverted, was overruled, or is lost.

        A lift that is out leaves the request of the job as it is, so that a delay timer or a size can follow it.
        """
        return self.state is not LeaseState.OUT or bool(self.lost) or (self.due_time is not None and not self.is_lift)

    def is_due(self, now: float) -> bool:
        """Return whether the change has to be reverted now; True also if the clock was set back to before it."""
        if self.by_person or self.lost or self.state is LeaseState.RETURNING:
            return True
        return self.due_time is not None and not self.applied_time <= now < self.due_time

    def is_overdue(self, now: float) -> bool:
        """Return whether the change is in effect although it should have been reverted."""
        return self.state in (LeaseState.OUT, LeaseState.RETURNING) and self.is_due(now)

    @property
    def earlier(self) -> "Lease | None":
        """The change on the field before this one was sent; None if the field held the user's value."""
        if self.action.before == self.undo.after:
            return None
        action = replace(self.action, before=self.undo.after, after=self.action.before)  # type: ignore[arg-type]  # of one kind
        return replace(self, action=action, undo=action.swapped(), due_time=None, state=LeaseState.OUT)

    def ended(self, ending: Ending, ended_time: float) -> "Lease":
        """Return the lease as it ended."""
        started = ending in (Ending.NO_LONGER_PENDING, Ending.OVERRULED)
        start_time = ended_time if started and self.start_time is None else self.start_time
        return replace(self, ending=ending, ended_time=ended_time, start_time=start_time)

    def restarted(self, now: float) -> "Lease":
        """Return the lease with the present time as its start, after the clock was set back to before that."""
        due_time = None if self.due_time is None else self.due_time - self.applied_time + now
        return replace(self, applied_time=now, due_time=due_time)

    def reopened(self) -> "Lease":
        """Return an open lease for an ended one; the delay stays booked on the ended one."""
        state = LeaseState.RETURNING if self.state is LeaseState.RETURNING else LeaseState.OUT
        return replace(
            self, state=state, ending=None, ended_time=None, added_delay_s=0.0, would_start_time=None, start_time=None
        )


def intended(
    action: Action,
    now: float,
    *,
    after_s: float | None = None,
    previous: Lease | None = None,
    job: Job | None = None,
    added_delay_s: float = 0.0,
    planned_start: float | None = None,
    request: Request | None = None,
) -> Lease:
    """Return the lease of an action about to be sent, due `after_s` from now.

    `previous` is the outstanding lease of the same field: its user's value is still the one to restore, its delay is
    added, and the earlier planned start holds.
    """
    first = action.swapped() if previous is None else replace(previous.undo, before=action.after)  # type: ignore[arg-type]  # of one kind
    return Lease(
        action=action,
        undo=first,
        applied_time=now,
        due_time=None if after_s is None else now + after_s,
        user="" if job is None else job.user,
        account="" if job is None else job.account,
        added_delay_s=added_delay_s + (0.0 if previous is None else previous.added_delay_s),
        priority=_priority(job, previous),
        planned_start=earlier_of(planned_start, None if previous is None else previous.planned_start),
        would_start_time=earlier_of(
            now if planned_start is not None and planned_start <= now else None,
            None if previous is None else previous.would_start_time,
        ),
        request=request,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """Why a change was made: the code of the reason, and its sentence, "" where that names jobs of other users."""

    reason: str
    text: str = ""


Purposes = Mapping[tuple[int, Lever], Purpose]


def _priority(job: Job | None, previous: Lease | None) -> int | None:
    return previous.priority if previous is not None else None if job is None else job.priority


def earlier_of(*instants: float | None) -> float | None:
    """Return the earliest of the instants that are known; None if none is."""
    return min((instant for instant in instants if instant is not None), default=None)


def gave_place(leases: Iterable[Lease]) -> frozenset[int]:
    """Return the jobs that went to the place of a smaller one."""
    return frozenset(lease.job_id for lease in leases if lease.gives_place and lease.ending is not Ending.NOT_APPLIED)


def request_without(leases: Iterable[Lease], job: Job) -> Request:
    """Return what a job asks for as its user wrote it: without those of its changes that it holds."""
    ours = [
        lease
        for lease in leases
        if lease.job_id == job.job_id
        and lease.lever is not Lever.NICE
        and lease.ending is None
        and lease.state is not LeaseState.HANDS_OFF
        and lease.action.can_hold(job, lease.action.after)
    ]
    for lease in ours:
        job = lease.undo.applied_to(job)
    return request_of(job, is_resized=any(lease.lever in _SIZES for lease in ours))
