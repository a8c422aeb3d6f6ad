"""Tries the changes of a cycle in rollouts before they are sent, and refuses those that do not gain.

All plans run from the same snapshot under the same draws of run times, and what counts is the mean completion of all
jobs, so that a change that helps one job and delays those behind it pays for both, and no job is counted twice.

- The lifts are one block. Whole traces show that they pay (docs/advice.md), which a rollout of a day sees in part only:
  the block is refused only if it clearly loses.
- Every other change has to gain on top of the lifts, also at the unfavourable end of the 80 % interval: the changes of
  a kind together, or else alone. What is chosen then has to gain once more under other draws, which did not choose it.
- A change without a rollout does not go out. Names of nodes, which the rollouts do not try, and lifts that make up for
  a delay of ours are sent untried.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from operator import attrgetter
from typing import Final, Protocol

from advisor.domain.actions import Action, Lever, Reason, SetNice
from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Interval
from advisor.domain.plan import Kind, Recommendation
from advisor.domain.units import HOUR_S
from advisor.planning.case import Case
from advisor.planning.rollout import (
    PlanEffect,
    Rollout,
    RolloutValues,
    Scenario,
    TimedAction,
    completion_change_s,
    effect_of,
)

# The rules, in the manner of the guard's, that refuse a change after its trial, or for want of one.
GAINS: Final = "gains_in_rollout"
TRIED: Final = "tried_in_rollout"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSize:
    """How much is rolled out: plans at once, draws of each, and the time that each covers.

    Of the plans two are without changes and with the lifts alone. The check of the choice takes up to three more.
    Over a longer horizon chance moves the mean more than a change does: a start that is a second later changes all
    that follow.
    """

    plans: int = 8
    draws: int = 12
    horizon_s: float = 12 * HOUR_S

    def __post_init__(self) -> None:
        if self.plans < 3 or self.draws < 2 or not self.horizon_s > 0.0:
            raise ValueError("a trial takes at least three plans and two draws, and a horizon above 0")


class TrialFinding(StrEnum):
    """What a trial found about a change or the block of lifts, and so why it goes out or not."""

    GAINS = "gains"
    GAINS_TOGETHER = "gains_together"
    NO_CLEAR_LOSS = "no_clear_loss"
    CLEAR_LOSS = "clear_loss"
    NO_CLEAR_GAIN = "no_clear_gain"
    NOT_CONFIRMED = "not_confirmed"
    NOT_TRIED = "not_tried"

    @property
    def refused_by(self) -> str | None:
        """The rule that refuses a change with this finding; None if it goes out."""
        match self:
            case TrialFinding.GAINS | TrialFinding.GAINS_TOGETHER | TrialFinding.NO_CLEAR_LOSS:
                return None
            case TrialFinding.NOT_TRIED:
                return TRIED
            case _:
                return GAINS


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedChange:
    """A change beside the lifts, and what its trial found.

    `alone_s` is how the change alone, on top of the lifts, changes the mean completion of all jobs, in seconds and
    below 0 for a gain; `together_s` the same with all changes of its kind. None where that was not rolled out.
    """

    job_id: int
    lever: Lever
    finding: TrialFinding
    alone_s: Interval | None = None
    together_s: Interval | None = None

    @property
    def key(self) -> tuple[int, Lever]:
        """The job and the lever: a plan holds one such change at most."""
        return self.job_id, self.lever


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTrial:
    """The trial of a plan: the effect of what goes out against no change, of the lifts, and of each other change.

    `effect` and `lifts_s` are None where nothing was rolled out, `lifts_s` and `lifts` also where none is proposed.
    `fault` is why nothing was rolled out, "" if something was, or nothing had to be.
    """

    effect: PlanEffect | None = None
    lifts: TrialFinding | None = None
    lifts_s: Interval | None = None
    changes: tuple[TriedChange, ...] = ()
    fault: str = ""


NO_TRIAL: Final = PlanTrial()


def is_lift(change: Recommendation) -> bool:
    """Return whether a change belongs to the block of lifts."""
    return isinstance(change.action, SetNice) and change.reason is not Reason.DELAYED_BY_ADVICE


def is_tried(change: Recommendation) -> bool:
    """Return whether a change goes out only after a trial of its own or of its kind."""
    return change.refused_by is None and change.action.is_simulated and not isinstance(change.action, SetNice)


class Trial(Protocol):
    """A way to try plans."""

    def tried(self, case: Case, changes: Sequence[Recommendation]) -> PlanTrial:
        """Return the trial of judged changes; a fault is part of it."""


def try_plan(case: Case, changes: Sequence[Recommendation], rollout: Rollout, size: TrialSize) -> PlanTrial:
    """Roll candidate plans out and decide which of the judged changes go out; equal inputs give equal trials.

    Raises what the rollout raises.
    """
    accepted = [change for change in changes if change.refused_by is None]
    others = sorted((change for change in accepted if is_tried(change)), key=_most_saved_first)
    base = [change for change in accepted if isinstance(change.action, SetNice)]
    has_lifts = any(map(is_lift, base))
    if not base and not others:
        return NO_TRIAL
    stage = _Stage.of(case, base, others, rollout, size)
    lifts, lifts_s = None, None
    if has_lifts:
        lifts, lifts_s = TrialFinding.NO_CLEAR_LOSS, completion_change_s(stage.values, stage.base, 0)
        if lifts_s.low > 0.0:
            lifts, base = TrialFinding.CLEAR_LOSS, [change for change in base if not is_lift(change)]
            stage = _Stage.of(case, base, others, rollout, size)
    tried = {found.key: found for found in stage.findings()}
    chosen = [change for change in others if tried[_key(change)].finding.refused_by is None]
    effect = effect_of(stage.values, stage.base, 0)
    if chosen:
        check = _Stage.of(case, base, chosen, rollout, size, is_check=True)
        is_confirmed = completion_change_s(check.values, check.base + 1, check.base).high < 0.0
        effect = effect_of(check.values, check.base + 1 if is_confirmed else check.base, 0)
        if not is_confirmed:
            tried |= {_key(one): replace(tried[_key(one)], finding=TrialFinding.NOT_CONFIRMED) for one in chosen}
    return PlanTrial(
        effect=effect,
        lifts=lifts,
        lifts_s=lifts_s,
        changes=tuple(tried[key] for key in sorted(tried)),
    )


def untried(changes: Sequence[Recommendation], fault: str) -> PlanTrial:
    """Return the trial of a plan for which nothing could be rolled out: the lifts go out, the other changes do not."""
    has_lifts = any(change.refused_by is None and is_lift(change) for change in changes)
    keys = sorted(_key(change) for change in changes if is_tried(change))
    return PlanTrial(
        lifts=TrialFinding.NO_CLEAR_LOSS if has_lifts else None,
        changes=tuple(
            TriedChange(job_id=job_id, lever=lever, finding=TrialFinding.NOT_TRIED) for job_id, lever in keys
        ),
        fault=fault,
    )


def refused_by_trial(changes: Sequence[Recommendation], trial: PlanTrial) -> tuple[Recommendation, ...]:
    """Return judged changes with the refusals of a trial."""
    refused = {tried.key: tried.finding.refused_by for tried in trial.changes}
    of_lifts = None if trial.lifts is None else trial.lifts.refused_by

    def refusal(change: Recommendation) -> str | None:
        return change.refused_by or (of_lifts if is_lift(change) else refused.get(_key(change)))

    return tuple(replace(change, refused_by=refusal(change)) for change in changes)


def scenario(changes: Sequence[Recommendation]) -> Scenario:
    """Return changes as a plan of a rollout, each with its end if it is to be reverted."""
    timed = []
    for change in changes:
        timed.append(TimedAction(action=change.action))
        if change.revert_after_s is not None:
            timed.append(TimedAction(action=change.action.swapped(), after_s=change.revert_after_s))
    return timed


# A candidate: all changes of a kind, or one change alone, by its key.
_Name = Kind | tuple[int, Lever]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """A call of the rollout: the plan without changes, the base that goes out in any case, and each candidate on top.

    `base` is the place of the base, 0 where it is empty; the candidates follow it in the order of `names`.
    """

    values: RolloutValues
    base: int
    names: Sequence[_Name]
    by_kind: Mapping[Kind, Sequence[Recommendation]]

    @classmethod
    def of(
        cls,
        case: Case,
        base: Sequence[Recommendation],
        others: Sequence[Recommendation],
        rollout: Rollout,
        size: TrialSize,
        *,
        is_check: bool = False,
    ) -> "_Stage":
        """Roll out the kinds with several changes, then changes alone, as many as there are plans for.

        As a check, roll out all changes together under the draws that come after those of a trial.
        """
        by_kind = {kind: members for kind in Kind if (members := [one for one in others if one.kind is kind])}
        candidates: dict[_Name, Sequence[Recommendation]] = {
            kind: members for kind, members in by_kind.items() if len(members) > 1
        }
        candidates |= {_key(change): [change] for change in others}
        names = list(candidates)[: size.plans - 2]
        tops = [others] if is_check else [candidates[name] for name in names]
        plans = [(), *([scenario(base)] if base else []), *(scenario([*base, *top]) for top in tops)]
        values = rollout.values(
            case, plans, horizon_s=size.horizon_s, draws=size.draws, first_draw=size.draws if is_check else 0
        )
        return cls(values=values, base=1 if base else 0, names=names, by_kind=by_kind)

    def findings(self) -> Iterator[TriedChange]:
        """Yield what was found about each change, from how each candidate changes the mean completion."""
        change_s = {
            name: completion_change_s(self.values, self.base + place, self.base)
            for place, name in enumerate(self.names, start=1)
        }
        for kind, members in self.by_kind.items():
            together_s = change_s.get(kind)
            for change in members:
                alone_s = change_s.get(_key(change))
                yield TriedChange(
                    job_id=change.job_id,
                    lever=change.action.lever,
                    finding=_finding(alone_s, together_s),
                    alone_s=alone_s,
                    together_s=together_s,
                )


def _finding(alone_s: Interval | None, together_s: Interval | None) -> TrialFinding:
    """Return what is found about a change; one that alone loses more likely than not does not gain with its kind."""
    if alone_s is not None and alone_s.high < 0.0:
        return TrialFinding.GAINS
    if together_s is not None and together_s.high < 0.0 and (alone_s is None or alone_s.median <= 0.0):
        return TrialFinding.GAINS_TOGETHER
    return TrialFinding.NOT_TRIED if alone_s is None and together_s is None else TrialFinding.NO_CLEAR_GAIN


def _key(change: Recommendation) -> tuple[int, Lever]:
    return change.job_id, change.action.lever


def _most_saved_first(change: Recommendation) -> tuple[float, int]:
    return -(change.expected.saved_s_low + change.expected.saved_s_high), change.job_id


# For this long a verdict on the same change holds, also that there was none in time.
KEPT_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """A verdict, and until when it holds."""

    tried: TriedChange
    until: float


@dataclass(slots=True, kw_only=True)
class KeptTrials:
    """Tries plans with changes on which there is no verdict; one thread at a time uses it."""

    trial: Trial
    _kept: dict[Action, _Verdict] = field(default_factory=dict)
    _lifts_lose_until: float = float("-inf")

    def tried(self, case: Case, changes: Sequence[Recommendation]) -> PlanTrial:
        """Return the trial of judged changes: what was found lately, or what is found now."""
        now = case.snapshot.taken_at
        self._kept = {action: kept for action, kept in self._kept.items() if now < kept.until <= now + KEPT_S}
        wanted = [change for change in changes if is_tried(change)]
        lifts = TrialFinding.CLEAR_LOSS if now < self._lifts_lose_until <= now + KEPT_S else None
        known = tuple(self._kept[change.action].tried for change in wanted if change.action in self._kept)
        if len(known) == len(wanted):
            return PlanTrial(lifts=lifts, changes=known)
        refused = PlanTrial(lifts=lifts, changes=tuple(one for one in known if one.finding.refused_by is not None))
        trial = self.trial.tried(case, refused_by_trial(changes, refused))
        self._keep(wanted, trial, now)
        return replace(
            trial,
            lifts=lifts or trial.lifts,
            changes=tuple(sorted((*refused.changes, *trial.changes), key=attrgetter("key"))),
        )

    def _keep(self, wanted: Sequence[Recommendation], trial: PlanTrial, now: float) -> None:
        action_by_key = {(change.job_id, change.action.lever): change.action for change in wanted}
        for tried in trial.changes:
            self._kept[action_by_key[tried.key]] = _Verdict(tried=tried, until=now + KEPT_S)
        if trial.lifts is TrialFinding.CLEAR_LOSS:
            self._lifts_lose_until = now + KEPT_S
