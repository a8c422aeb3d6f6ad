"""Keeps the verdicts of trials for a while, so that the same changes are not tried in every cycle."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from advisor.domain.actions import Action
from advisor.domain.plan import Recommendation
from advisor.planning.case import Case
from advisor.planning.plan_trial import PlanTrial, Trial, TrialFinding, TriedChange, is_tried, refused_by_trial

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
