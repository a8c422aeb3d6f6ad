"""Defines recommendations, verdicts and receipts."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from advisor.domain.actions import Action, Reason


class Kind(StrEnum):
    """The kinds of change, in the order in which they are judged; only the first affects running jobs."""

    PREEMPT = "preempt"
    CONSOLIDATE = "consolidate"
    RESIZE = "resize"
    REORDER = "reorder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected effect of a change: a range of the JCT saved over all jobs it helps, and its cost.

    `added_delay_max_s` bounds the delay of the changed job itself. `assumes` states in words what the range is based
    on.
    """

    saved_s_low: float
    saved_s_high: float
    jobs_helped: int
    added_delay_max_s: float
    assumes: str


Evidence = str | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """One proposed change to one job, with the numbers behind it.

    `revert_after_s` is the time after which the change has to be reverted, None if it ends by itself or can stay.
    """

    kind: Kind
    action: Action
    reason: Reason
    text: str
    expected: Expected
    evidence: Mapping[str, Evidence]
    revert_after_s: float | None = None

    @property
    def job_id(self) -> int:
        """The job that is changed."""
        return self.action.job_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The recommendations of one cycle, sorted by kind and job id."""

    recommendations: tuple[Recommendation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A recommendation as judged by the guard; `refused_by` is the rule that refused it, None if all hold."""

    recommendation: Recommendation
    refused_by: str | None = None


class Outcome(StrEnum):
    """The result of an action that was sent."""

    APPLIED = "applied"
    ALREADY_SO = "already_so"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The result of an action, as read back; `text` is why it failed, in the cluster's own words.

    `is_settled` False means that it was sent and not refused, so that it could have taken effect or still can.
    `is_overruled` means that it was not sent, because somebody else has changed the field.
    """

    action: Action
    outcome: Outcome
    text: str = ""
    is_settled: bool = True
    is_overruled: bool = False
