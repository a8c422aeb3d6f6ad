"""Defines how a lease changes with what a snapshot shows of its job: a table of states and transitions.

A lease is a change that was recorded before it was sent. This module is pure; the applier writes the journal and sends
the commands.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from advisor.domain.actions import Lever, SetNice, SetNodeList, SetNodeRange
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState, request_without
from advisor.domain.request import REQUEUED
from advisor.domain.snapshot import Snapshot
from advisor.features.bars import NamedNodes


class Sight(StrEnum):
    """What a snapshot shows of the field that a lease changed."""

    GONE = "gone"  # the job is not in the queue
    STARTED = "started"  # it is no longer pending
    UNREAD = "unread"  # the reader does not show the field, or cannot read the job
    BEFORE = "before"  # it holds what it held before our change
    USERS = "users"  # it holds what its user had there at first, or held that when it started
    OURS = "ours"  # it holds our value
    ONE_END = "one_end"  # our value or the one before: Slurm hides the end in which they differ
    OTHERS = "others"  # it holds any other value


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a lease."""

    ending: Ending


Next = Lease | Ended
# Takes the lease, the instant, and for how long an intent can still come true.
Transition = Callable[[Lease, float, float], Next]


def sight_of(lease: Lease, snapshot: Snapshot) -> Sight:
    """Return what a snapshot shows of the field of a lease."""
    if snapshot.leaves_out(lease.job_id):
        return Sight.UNREAD
    job = snapshot.jobs_by_id.get(lease.job_id)
    if job is None:
        return Sight.GONE
    if not job.is_pending:
        return Sight.USERS if _started_as_asked(lease, job) else Sight.STARTED
    return _held(lease, job) if snapshot.shows(job, lease.lever) else Sight.UNREAD


def _started_as_asked(lease: Lease, job: Job) -> bool:
    """Return whether a job started on more nodes than our range allows, so that the revert took effect before."""
    is_returning = lease.state is LeaseState.RETURNING
    on_nodes = 0 if job.allocation is None else len(job.allocation.nodes)
    return is_returning and isinstance(lease.action, SetNodeRange) and on_nodes > lease.action.after.high


def _held(lease: Lease, job: Job) -> Sight:
    held = lease.action.held_by(job)
    if lease.state is LeaseState.INTENDED and held == lease.action.before:
        return Sight.BEFORE
    is_returning = lease.state is LeaseState.RETURNING or (lease.state is LeaseState.OUT and bool(lease.lost))
    if is_returning and held == lease.undo.after:
        return Sight.USERS
    if not lease.action.can_hold(job, lease.action.after):
        return Sight.OTHERS
    return Sight.ONE_END if lease.action.can_hold(job, lease.action.before) else Sight.OURS


def next_lease(lease: Lease, sight: Sight, now: float, grace_s: float) -> Next:
    """Return the state of a lease after a sight, or its end.

    An intent that shows no effect stays one for `grace_s`, in which it can still take effect.
    """
    return TRANSITIONS[lease.state, sight](lease, now, grace_s)


def took_effect(lease: Lease, *_: float) -> Next:
    """Return the lease of a change that took effect; it has ended if it restores the user's value."""
    if lease.action.after == lease.undo.after:
        return Ended(ending=Ending.TAKEN_BACK)
    return replace(lease, state=LeaseState.OUT)


def took_no_effect(lease: Lease, *_: float) -> Next:
    """Return the lease of a change that took no effect: the earlier lease of the field, or the end of this one."""
    earlier = lease.earlier
    return Ended(ending=Ending.NOT_APPLIED) if earlier is None else earlier


def returned(lease: Lease, *_: float) -> Next:
    """Return the end of a change that was reverted."""
    return Ended(ending=Ending.REVERTED if lease.by_person else Ending.TAKEN_BACK)


def overruled(lease: Lease, now: float, *_: float) -> Next:
    """Return the lease of a field that a person has changed since; their value stays."""
    return replace(lease, state=LeaseState.HANDS_OFF, overruled_time=now)


def _stays(lease: Lease, *_: float) -> Next:
    return lease


def _gone(lease: Lease, *_: float) -> Next:
    hands_off = lease.state is LeaseState.HANDS_OFF
    return Ended(ending=Ending.OVERRULED if hands_off else Ending.NO_LONGER_PENDING)


def _wait_then(otherwise: Transition) -> Transition:
    """Return the transition that waits while an intent can still take effect, and then makes `otherwise`."""

    def wait(lease: Lease, now: float, grace_s: float) -> Next:
        if now < lease.applied_time:
            # The clock was set back.
            return lease.restarted(now)
        return lease if now - lease.applied_time < grace_s else otherwise(lease, now, grace_s)

    return wait


TRANSITIONS: Final[Mapping[tuple[LeaseState, Sight], Transition]] = {
    (LeaseState.INTENDED, Sight.GONE): _gone,
    (LeaseState.INTENDED, Sight.STARTED): _wait_then(_gone),
    (LeaseState.INTENDED, Sight.UNREAD): _wait_then(took_effect),
    (LeaseState.INTENDED, Sight.BEFORE): _wait_then(took_no_effect),
    (LeaseState.INTENDED, Sight.OURS): took_effect,
    (LeaseState.INTENDED, Sight.ONE_END): _wait_then(took_effect),
    (LeaseState.INTENDED, Sight.OTHERS): overruled,
    (LeaseState.OUT, Sight.GONE): _gone,
    (LeaseState.OUT, Sight.STARTED): _gone,
    # The actuator reads the field before it reverts a change, and leaves a person's value in place.
    (LeaseState.OUT, Sight.UNREAD): _stays,
    # Of a job that lost the change: slurmctld itself took it back, by job_submit.lua.
    (LeaseState.OUT, Sight.USERS): returned,
    (LeaseState.OUT, Sight.OURS): _stays,
    (LeaseState.OUT, Sight.ONE_END): _stays,
    (LeaseState.OUT, Sight.OTHERS): overruled,
    (LeaseState.RETURNING, Sight.GONE): _gone,
    (LeaseState.RETURNING, Sight.STARTED): _gone,
    (LeaseState.RETURNING, Sight.UNREAD): _stays,
    (LeaseState.RETURNING, Sight.USERS): returned,
    (LeaseState.RETURNING, Sight.OURS): _stays,
    (LeaseState.RETURNING, Sight.ONE_END): _stays,
    (LeaseState.RETURNING, Sight.OTHERS): overruled,
    (LeaseState.HANDS_OFF, Sight.GONE): _gone,
    (LeaseState.HANDS_OFF, Sight.STARTED): _stays,
    (LeaseState.HANDS_OFF, Sight.UNREAD): _stays,
    (LeaseState.HANDS_OFF, Sight.OURS): _stays,
    (LeaseState.HANDS_OFF, Sight.ONE_END): _stays,
    (LeaseState.HANDS_OFF, Sight.OTHERS): _stays,
}


def without_place(leases: Iterable[Lease], snapshot: Snapshot) -> frozenset[int]:
    """Return the pending jobs that hold a list of nodes of ours on which they could not start now.

    Others have taken these nodes, or they are drained, down or reserved; the job would wait for them.
    """
    nodes = NamedNodes(snapshot=snapshot)
    return frozenset(
        lease.job_id
        for lease in leases
        if isinstance(lease.action, SetNodeList)
        and lease.action.after
        and (job := snapshot.jobs_by_id.get(lease.job_id)) is not None
        and job.is_pending
        and not nodes.hold(job, lease.action.after)
    )


def unpaired(leases: Sequence[Lease], due: Collection[Lease], snapshot: Snapshot) -> list[Lease]:
    """Return the halves of exchanges that end since the other half does, or never began, beside those that are due.

    A job whose partner has started, or left the queue, stays in its place until it is due itself.
    """
    ending = {(lease.job_id, lease.lever) for lease in due}
    holding = {
        lease.job_id: lease.exchanged_with
        for lease in leases
        if lease.state in (LeaseState.INTENDED, LeaseState.OUT) and (lease.job_id, lease.lever) not in ending
    }
    return [
        lease
        for lease in leases
        if lease.exchanged_with is not None
        and lease.state is LeaseState.OUT
        and (lease.job_id, lease.lever) not in ending
        and holding.get(lease.exchanged_with) != lease.job_id
        and (partner := snapshot.jobs_by_id.get(lease.exchanged_with)) is not None
        and partner.is_pending
    ]


def outgrown(leases: Sequence[Lease], snapshot: Snapshot) -> Iterator[Lease]:
    """Yield the leases of pending jobs that ask for more than when the change was made, or were requeued since.

    `leases` are all open ones; each one that is yielded says why its job has lost the change. An array loses it with
    any of its waiting tasks that hold it.
    """
    of_job: dict[int, list[Lease]] = {}
    for lease in leases:
        of_job.setdefault(lease.job_id, []).append(lease)
    tasks: dict[int, list[Job]] = {}
    for job in snapshot.pending:
        if job.array is not None and job.is_split_off:
            tasks.setdefault(job.array.array_job_id, []).append(job)
    for lease in leases:
        if lease.request is None or lease.lost or not lease.favours or lease.state is LeaseState.HANDS_OFF:
            continue
        own = snapshot.jobs_by_id.get(lease.job_id)
        holding = (job for job in tasks.get(lease.job_id, ()) if lease.action.held_by(job) == lease.action.after)
        more = (
            lease.request.more_in(request_without(of_job[lease.job_id], job))
            for job in (*holding, *filter(None, [own]))
            if job.is_pending and not job.unseen
        )
        lost = next(filter(None, more), "")
        if lost:
            yield replace(lease, lost=lost)


def requeued(lease: Lease, job: Job, snapshot: Snapshot) -> Lease | None:
    """Return the reopened lease of a job that had started and was requeued, since Slurm keeps its fields.

    None if the field holds the user's value. If the field was not read, reverting the change determines that. A change
    for which the job goes ahead of others was made for the run that has begun: it is lost.
    """
    again = _reopened(lease, job, snapshot)
    if again is None or again.request is None or not again.favours:
        return again
    return replace(again, lost=REQUEUED)


def _reopened(lease: Lease, job: Job, snapshot: Snapshot) -> Lease | None:
    if not snapshot.shows(job, lease.lever):
        return lease.reopened()
    for own in (lease, lease.earlier):
        if own is not None and own.action.can_hold(job, own.action.after):
            return None if own.action.held_by(job) == own.undo.after else own.reopened()
    return None


def inherited(closed: Iterable[Lease], task: Job, snapshot: Snapshot) -> Lease | None:
    """Return the lease of a requeued task of an array that had started with the array's nice, None if it did not.

    `closed` are the leases of the array, in the order in which they ended. The task has a record and an id of its own
    since it started, and no lease.
    """
    if not snapshot.shows(task, Lever.NICE):
        return None
    for lease in reversed(list(closed)):
        if (
            lease.ending is not Ending.NOT_APPLIED
            and isinstance(lease.undo, SetNice)
            and isinstance(lease.action, SetNice)
        ):
            action = replace(lease.action, job_id=task.job_id)
            again = requeued(
                replace(lease, action=action, undo=replace(lease.undo, job_id=task.job_id)), task, snapshot
            )
            if again is not None:
                return again
    return None
