"""Defines recommendations with the facts behind them, what the guard permits, and receipts."""

from collections.abc import Mapping
from dataclasses import asdict, field, fields
from enum import StrEnum
from typing import Final

from advisor.domain.actions import Action, Lever, Reason
from advisor.domain.dataclass import dataclass
from advisor.domain.topology import LocalityTier

Evidence = str | int | float

# Marks a fact that its sentence needs and that is not published as evidence.
UNPUBLISHED: Final[Mapping[str, bool]] = {"is_unpublished": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts by name, not rounded; a proposer declares a class of them for each of its reasons.

    The order of the fields is that of the evidence.
    """

    @property
    def reason(self) -> Reason:
        """Return the reason of the proposal."""
        raise NotImplementedError

    @property
    def evidence(self) -> dict[str, Evidence]:
        """Return the facts as published."""
        return published(self)


def published(facts: Facts) -> dict[str, Evidence]:
    """Return the facts that are published, numbers rounded to a thousandth."""
    return {fact.name: _rounded(getattr(facts, fact.name)) for fact in fields(facts) if not fact.metadata}


def _rounded(value: Evidence | LocalityTier | None) -> Evidence:
    match value:
        case None:
            return "none"
        case LocalityTier():
            return value.name.lower()
        case float():
            return round(value, 3)
        case int() | str():
            return value


class Kind(StrEnum):
    """The kinds of change to pending jobs, in the order in which they are judged."""

    CONSOLIDATE = "consolidate"
    RESIZE = "resize"
    REORDER = "reorder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected effect of a change: the JCT saved over all jobs it helps, with its range, and its cost.

    `saved_s` is what the change should save on average, by the run times and speeds that the planner counts with. It
    lies in the range and decides nothing: it is what people read first. Where a lift delays the jobs that it passes,
    their time is subtracted, so that the range can begin below 0.
    `added_delay_max_s` is the delay of the changed job itself that counts against `guard.max_added_delay_s`. That of a
    job that gives its place does not count, nor that of one that a lift passes: both have the bound on lateness.
    """

    saved_s: float
    saved_s_low: float
    saved_s_high: float
    jobs_helped: int
    added_delay_max_s: float

    @property
    def decides(self) -> dict[str, float]:
        """Return what plans are compared and recorded by: all but the average."""
        return {name: value for name, value in asdict(self).items() if name != "saved_s"}


def clipped(value: float, low: float, high: float) -> float:
    """Return a value, or the end of its range beyond which it lies.

    The mean of a run time with a long tail can lie above its 80 % interval.
    """
    return min(max(value, low), high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """One proposed change to one job, with the facts behind it.

    `revert_after_s` is the time after which the change has to be reverted, None if it ends by itself or can stay.
    `planned_start` is when the job would start as submitted, and `latest_start` when it would with the change; None
    where that is unknown.
    `gpu_s` is the GPU-time that counts for a lifted job; None for other changes.
    `stretch` is how many times as long the job is expected to run with the change, as far as its size decides that.
    `refused_by` is the rule by which the guard refused it, None before it was judged and if all rules hold.
    """

    kind: Kind
    action: Action
    facts: Facts
    expected: Expected
    revert_after_s: float | None = None
    planned_start: float | None = None
    latest_start: float | None = None
    gpu_s: float | None = None
    stretch: float = 1.0
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
    """The result of an action."""

    APPLIED = "applied"
    ALREADY_SO = "already_so"
    FAILED = "failed"
    HELD_BACK = "held_back"  # the gate was closed: nothing was sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The result of an action, as read back; `text` is why it failed, in the cluster's words, or was held back.

    `is_settled` False means that it was sent and not refused, so that it could have taken effect or still can.
    `is_overruled` means that it was not sent, because somebody else has changed the field.
    """

    action: Action
    outcome: Outcome
    text: str = ""
    is_settled: bool = True
    is_overruled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverProposals:
    """For how many jobs a lever was `proposed`, refused, by rule, and `applied`."""

    lever: Lever
    proposed: int
    refused: Mapping[str, int]
    applied: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Permits:
    """The jobs of one cycle that can be changed, and by how much they can be delayed.

    `left_alone` maps pending GPU jobs that must not be changed to the rule that refuses. `nice_only` names those
    among them whose nice can be changed all the same, and nothing else. `delay_left_s` maps jobs to how much longer
    they can be delayed, where that is less than the full bound. `late_s` maps the jobs that can be lifted to how long
    they have waited since they would have started as submitted.
    """

    left_alone: Mapping[int, str] = field(default_factory=dict)
    nice_only: frozenset[int] = frozenset()
    delay_left_s: Mapping[int, float] = field(default_factory=dict)
    late_s: Mapping[int, float] = field(default_factory=dict)
