"""Words the changes of ours that a job holds: since when, what for, and when they are reverted."""

from collections.abc import Mapping
from typing import Any, Final

from advisor.domain.actions import ACTIONS
from advisor.domain.lease import Ending, Lease, Purpose, Purposes
from advisor.domain.units import duration
from advisor.view.terminal import instant

_ENDINGS: Final[Mapping[str, str]] = {
    Ending.TAKEN_BACK: "sadvise reverted it when it was due",
    Ending.NO_LONGER_PENDING: "the job had started or left the queue",
    Ending.REVERTED: "a person reverted it, so the job is left alone",
    Ending.OVERRULED: "somebody else changed the field",
    Ending.DONE_FOR_GOOD: "it stays",
}


def changes_of(job_id: int, leases: tuple[Lease, ...], purposes: Purposes) -> list[dict[str, Any]]:
    """Return the changes in effect on a job as published, oldest first; `before` is the user's own value."""
    own = [lease for lease in leases if lease.job_id == job_id and lease.is_in_effect]
    return [
        published_change(lease, purposes.get((lease.job_id, lease.lever)))
        for lease in sorted(own, key=lambda lease: (lease.applied_time, lease.lever))
    ]


def ended_changes_of(job_id: int, leases: tuple[Lease, ...]) -> list[dict[str, Any]]:
    """Return the changes that a job held and holds no more as published, oldest first."""
    ended = [lease for lease in leases if lease.job_id == job_id and lease.ending not in (None, Ending.NOT_APPLIED)]
    return [
        {
            "lever": str(lease.lever),
            "before": lease.undo.published()[1],
            "after": lease.action.published()[1],
            "ending": str(lease.ending),
            "lost": lease.lost or None,
            "applied_time": lease.applied_time,
            "ended_time": lease.ended_time,
        }
        for lease in sorted(ended, key=lambda lease: (lease.applied_time, lease.lever))
    ]


def ended_change_sentence(change: dict[str, Any]) -> str:
    """Return a published change that has ended for people, without its times."""
    in_words = ACTIONS[change["lever"]].in_words
    lost = f"sadvise reverted it, since the job {change['lost']}"
    how = lost if change["lost"] and change["ending"] == Ending.TAKEN_BACK else _ENDINGS[change["ending"]]
    return f"{in_words(change['before'])} -> {in_words(change['after'])}; {how}"


def change_sentence(change: dict[str, Any]) -> str:
    """Return a published change for people, without its times."""
    in_words = ACTIONS[change["lever"]].in_words
    why = change["text"] or _without_sentence(change)
    return f"{in_words(change['before'])} -> {in_words(change['after'])}: {why}; {_end(change)}"


def _without_sentence(change: dict[str, Any]) -> str:
    """Return the reason and the bound of a change whose sentence, which gives both, is not known."""
    reason = change["reason"] or "the reason is no longer recorded"
    added_s = change["added_delay_max_s"]
    return f"{reason}; it delays the job by at most {duration(added_s)}" if added_s else reason


def published_change(lease: Lease, purpose: Purpose | None) -> dict[str, Any]:
    """Return a change in effect as published; `before` is the user's own value."""
    return {
        "lever": str(lease.lever),
        "before": lease.undo.published()[1],
        "after": lease.action.published()[1],
        "reason": None if purpose is None else purpose.reason,
        "text": None if purpose is None else purpose.text or None,
        "applied_time": lease.applied_time,
        "due_time": lease.due_time,
        "added_delay_max_s": lease.added_delay_s,
    }


def _end(change: dict[str, Any]) -> str:
    due_time = change["due_time"]
    if due_time is None:
        return "not reverted, as it ends by itself or can stay"
    return f"reverted at {instant(due_time)}, unless the job has started"
