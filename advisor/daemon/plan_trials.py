"""Tries plans before they are sent, in a process of its own, and keeps the verdicts for a while."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from advisor.backends.child import run_module
from advisor.backends.process import Deadline
from advisor.domain.actions import Action
from advisor.domain.plan import Recommendation
from advisor.domain.units import duration
from advisor.errors import AdvisorError
from advisor.planning.case import Case
from advisor.planning.plan_trial import PlanTrial, TrialFinding, TriedChange, is_tried, refused_by_trial, untried
from advisor.settings import PlanningSettings
from advisor.sim.trial_child import ANSWER, TrialTask

# For this long a verdict on the same change holds, also that there was none in time.
KEPT_S: Final = 600.0
_MODULE: Final = "advisor.sim.trial_child"
# The share of what is left of a round that a trial can take.
_ROUND_RATIO: Final = 0.5

# Runs a packed task within a time limit and returns its answer as JSON; raises `AdvisorError`.
RunTrial = Callable[[bytes, float], bytes]


def run_trial(patience: Deadline | None = None) -> RunTrial:
    """Return a function that runs tasks in a process of the lowest priority, within the patience of a round."""

    def run(task: bytes, limit_s: float) -> bytes:
        left_s = limit_s if patience is None else _ROUND_RATIO * (patience.until - time.monotonic())
        return run_module(_MODULE, task, patience, limit_s=max(1.0, min(limit_s, left_s)))

    return run


def trials_by(settings: PlanningSettings, patience: Deadline | None = None) -> "PlanTrials | None":
    """Return what tries plans by the settings; None if they plan by the formulas alone."""
    deadline_s = settings.rollout_deadline_s
    return PlanTrials(run=run_trial(patience), deadline_s=deadline_s) if deadline_s > 0.0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """A verdict, and until when it holds."""

    tried: TriedChange
    until: float


@dataclass(slots=True, kw_only=True)
class PlanTrials:
    """Try the plans of one daemon or command within `deadline_s`; one thread at a time uses it."""

    run: RunTrial
    deadline_s: float
    _kept: dict[Action, _Verdict] = field(default_factory=dict)
    _lifts_lose_until: float = float("-inf")

    def tried(self, case: Case, changes: Sequence[Recommendation]) -> PlanTrial:
        """Return the trial of judged changes: what was found lately, or of a process that is started now."""
        now = case.snapshot.taken_at
        self._kept = {action: kept for action, kept in self._kept.items() if now < kept.until <= now + KEPT_S}
        wanted = [change for change in changes if is_tried(change)]
        lifts = TrialFinding.CLEAR_LOSS if now < self._lifts_lose_until <= now + KEPT_S else None
        known = tuple(self._kept[change.action].tried for change in wanted if change.action in self._kept)
        if len(known) == len(wanted):
            return PlanTrial(lifts=lifts, changes=known)
        refused = PlanTrial(lifts=lifts, changes=tuple(one for one in known if one.finding.refused_by is not None))
        trial = self._run(case, refused_by_trial(changes, refused))
        self._keep(wanted, trial, now)
        return replace(
            trial,
            lifts=lifts or trial.lifts,
            changes=tuple(sorted((*refused.changes, *trial.changes), key=attrgetter("key"))),
        )

    def _run(self, case: Case, changes: tuple[Recommendation, ...]) -> PlanTrial:
        task = TrialTask(
            snapshot=case.snapshot, forecasts=case.forecasts, settings=case.settings, changes=changes
        ).packed()
        begun = time.monotonic()
        try:
            return ANSWER.validate_json(self.run(task, self.deadline_s), strict=True)
        except (AdvisorError, ValueError) as err:
            late = "" if time.monotonic() - begun < self.deadline_s else f" within {duration(self.deadline_s)}"
            return untried(changes, f"the plan was not rolled out{late}: {err}")

    def _keep(self, wanted: Sequence[Recommendation], trial: PlanTrial, now: float) -> None:
        action_by_key = {(change.job_id, change.action.lever): change.action for change in wanted}
        for tried in trial.changes:
            self._kept[action_by_key[tried.key]] = _Verdict(tried=tried, until=now + KEPT_S)
        if trial.lifts is TrialFinding.CLEAR_LOSS:
            self._lifts_lose_until = now + KEPT_S
