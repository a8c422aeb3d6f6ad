"""What is proposed, why, and what became of it."""

from dataclasses import dataclass
from enum import StrEnum

from advisor.domain.actions import Action, Reason
from advisor.domain.facts import Evidence, Facts


class Kind(StrEnum):
    """The kinds of change, in the order in which they are judged; only the first is one to running jobs."""

    PREEMPT = "preempt"
    CONSOLIDATE = "consolidate"
    RESIZE = "resize"
    REORDER = "reorder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a change should bring: JCT saved over all jobs it helps, as a range, and what it may cost.

    `added_delay_max_s` bounds how much later the changed job itself may start.
    """

    saved_s_low: float
    saved_s_high: float
    jobs_helped: int
    added_delay_max_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """One proposed change to one job, with the facts behind it.

    `revert_after_s` is how long after the apply the change has to be taken back by hand, None where it
    ends by itself or may stay. `refused_by` names the rule by which the guard refused it, None before it was judged and
    where all rules hold.
    """

    kind: Kind
    action: Action
    facts: Facts
    expected: Expected
    revert_after_s: float | None = None
    refused_by: str | None = None

    @property
    def job_id(self) -> int:
        """The job that is changed."""
        return self.action.job_id

    @property
    def reason(self) -> Reason:
        """The code of why it is proposed."""
        return self.facts.reason

    @property
    def evidence(self) -> dict[str, Evidence]:
        """The facts as published."""
        return self.facts.evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The recommendations of one cycle, sorted by kind and job id."""

    recommendations: tuple[Recommendation, ...] = ()


class Outcome(StrEnum):
    """What became of an action."""

    APPLIED = "applied"
    ALREADY_SO = "already_so"
    FAILED = "failed"
    HELD_BACK = "held_back"  # the gate was closed: nothing was sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of an action, as read back; `text` is why it failed, in the cluster's words, or was held back.

    `is_settled` False: it was sent and nobody refused it, so it may have taken effect, or still may. `is_overruled`:
    it was not sent, because somebody else has changed the field.
    """

    action: Action
    outcome: Outcome
    text: str = ""
    is_settled: bool = True
    is_overruled: bool = False
