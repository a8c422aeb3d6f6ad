"""Words the changes of ours that a job holds: since when, what for, and when they are reverted."""

from collections.abc import Mapping
from typing import Final

from advisor.domain.actions import ACTIONS, Lever, Published
from advisor.domain.dataclass import dataclass
from advisor.domain.lease import Ending, Lease, Purpose, Purposes
from advisor.domain.units import duration
from advisor.view.terminal import instant

_ENDINGS: Final[Mapping[str, str]] = {
    Ending.TAKEN_BACK: "sadvise reverted it when it was due",
    Ending.NO_LONGER_PENDING: "the job had started or left the queue",
    Ending.REVERTED: "a person reverted it, so the job is left alone",
    Ending.OVERRULED: "somebody else changed the field",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldChangeDocument:
    """A change of ours that a pending job holds, as published; it is not reverted where `due_time` is None.

    `before` is the user's own value. `reason` and `text` are None where they are no longer recorded.
    """

    lever: str
    before: Published
    after: Published
    reason: str | None
    text: str | None
    applied_time: float
    due_time: float | None
    added_delay_max_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedChangeDocument:
    """A change of ours that a job held and holds no more, as published; `lost` is what its job did to lose it."""

    lever: str
    before: Published
    after: Published
    ending: str
    lost: str | None
    applied_time: float
    ended_time: float


def changes_of(job_id: int, leases: tuple[Lease, ...], purposes: Purposes) -> list[HeldChangeDocument]:
    """Return the changes in effect on a job as published, oldest first."""
    own = [lease for lease in leases if lease.job_id == job_id and lease.is_in_effect]
    return [
        held_change(lease, purposes.get((lease.job_id, lease.lever)))
        for lease in sorted(own, key=lambda lease: (lease.applied_time, lease.lever))
    ]


def ended_changes_of(job_id: int, leases: tuple[Lease, ...]) -> list[EndedChangeDocument]:
    """Return the changes that a job held and holds no more as published, oldest first."""
    return [
        EndedChangeDocument(
            lever=str(lease.lever),
            before=lease.undo.published()[1],
            after=lease.action.published()[1],
            ending=str(lease.ending),
            lost=lease.lost or None,
            applied_time=lease.applied_time,
            ended_time=lease.ended_time,
        )
        for lease in sorted(leases, key=lambda lease: (lease.applied_time, lease.lever))
        if lease.job_id == job_id and lease.ended_time is not None and lease.ending is not Ending.NOT_APPLIED
    ]


def ended_change_sentence(change: EndedChangeDocument) -> str:
    """Return a published change that has ended for people, without its times."""
    in_words = ACTIONS[Lever(change.lever)].in_words
    lost = f"sadvise reverted it, since the job {change.lost}"
    how = lost if change.lost and change.ending == Ending.TAKEN_BACK else _ENDINGS[change.ending]
    return f"{in_words(change.before)} -> {in_words(change.after)}; {how}"


def change_sentence(change: HeldChangeDocument) -> str:
    """Return a published change for people, without its times."""
    in_words = ACTIONS[Lever(change.lever)].in_words
    why = change.text or _without_sentence(change)
    return f"{in_words(change.before)} -> {in_words(change.after)}: {why}; {_end(change)}"


def _without_sentence(change: HeldChangeDocument) -> str:
    """Return the reason and the bound of a change whose sentence, which gives both, is not known."""
    reason = change.reason or "the reason is no longer recorded"
    added_s = change.added_delay_max_s
    return f"{reason}; it delays the job by at most {duration(added_s)}" if added_s else reason


def held_change(lease: Lease, purpose: Purpose | None) -> HeldChangeDocument:
    """Return a change in effect as published."""
    return HeldChangeDocument(
        lever=str(lease.lever),
        before=lease.undo.published()[1],
        after=lease.action.published()[1],
        reason=None if purpose is None else purpose.reason,
        text=None if purpose is None else purpose.text or None,
        applied_time=lease.applied_time,
        due_time=lease.due_time,
        added_delay_max_s=lease.added_delay_s,
    )


def _end(change: HeldChangeDocument) -> str:
    if change.due_time is None:
        return "not reverted, as it ends by itself or can stay"
    return f"reverted at {instant(change.due_time)}, unless the job has started"
