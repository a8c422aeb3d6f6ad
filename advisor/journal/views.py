"""Defines the values in which the journal presents past cycles."""

from collections.abc import Sequence
from enum import StrEnum

from advisor.domain.actions import Action
from advisor.domain.dataclass import dataclass
from advisor.journal.rows import PastStop


class Done(StrEnum):
    """What happened to a change, at one instant."""

    RECOMMENDED = "recommended"  # proposed, and no rule refused it
    REFUSED = "refused"  # by the named rule
    HELD_BACK = "held_back"  # no rule refused it, but it could not be sent then
    APPLIED = "applied"
    ALREADY_SO = "already_so"
    FAILED = "failed"
    TAKEN_BACK = "taken_back"
    NOT_TAKEN_BACK = "not_taken_back"  # Slurm refused, or it could not be sent then
    OVERRULED = "overruled"  # somebody else has changed the field


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCycle:
    """One cycle; `record_bytes` is the size of its record, 0 if it was not recorded in full, for the reason `note`."""

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
    """A proposal or an action about one field of one job; `said` is the reason, the rule, or Slurm's message.

    `cycle_id` is None if it was not part of a cycle.
    """

    cycle_id: int | None
    time: float
    job_id: int
    lever: str
    done: Done
    action: Action | PastStop
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowQuery:
    """A query for the newest `most` rows after an instant, of some jobs or of all."""

    job_ids: Sequence[int] | None = None
    since: float = 0.0
    most: int = 50
