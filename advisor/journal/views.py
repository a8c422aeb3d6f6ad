"""What the journal tells of past cycles, for people."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from advisor.domain.actions import Action


class Done(StrEnum):
    """What became of a change, at one instant."""

    RECOMMENDED = "recommended"  # proposed, and no rule refused it
    REFUSED = "refused"  # by the rule that is named
    HELD_BACK = "held_back"  # no rule refused it, and it was not the time to send it
    APPLIED = "applied"
    ALREADY_SO = "already_so"
    FAILED = "failed"
    TAKEN_BACK = "taken_back"
    NOT_TAKEN_BACK = "not_taken_back"  # Slurm refused, or it was not the time
    OVERRULED = "overruled"  # somebody else has changed the field


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCycle:
    """One cycle; `record_bytes` is the room that its record takes, 0 where it was not kept whole, and `note` why."""

    cycle_id: int
    taken_at: float
    version: str
    jobs: int
    pending: int
    proposed: int
    recommended: int
    left_alone: int
    applied: int
    held_back: int
    digest: str
    note: str
    record_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PastChange:
    """What was said or done about one field of one job; `said` is the reason, the rule, or Slurm's words.

    `cycle_id` is None where it was no part of a cycle.
    """

    cycle_id: int | None
    time: float
    job_id: int
    lever: str
    done: Done
    action: Action
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Which rows are wanted: of some jobs or of all, after an instant, the newest of them."""

    job_ids: Sequence[int] | None = None
    since: float = 0.0
    most: int = 50
