"""Tries plans before they are sent, in a process of its own and within a deadline."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from advisor.backends.child import run_module
from advisor.backends.process import Deadline
from advisor.domain.dataclass import dataclass
from advisor.domain.plan import Recommendation
from advisor.domain.units import duration
from advisor.errors import AdvisorError, SimulationError
from advisor.planning.case import Case
from advisor.planning.plan_trial import KeptTrials, PlanTrial, Trial, untried
from advisor.settings import PlanningSettings

_MODULE: Final = "advisor.sim.live.rollout_trial"
# The share of what is left of a round that a trial can take.
_ROUND_RATIO: Final = 0.5
# With more waiting jobs, rollouts take minutes.
MOST_WAITING: Final = 5000

# The rollouts of a short queue take about this long at most, and a command that tries them has a deadline of as much.
_SHORT_S: Final = 1.0
_PATIENT_S: Final = 5.0
_SHORT_QUEUE: Final = 200

# Runs a packed task within a time limit and returns its answer as JSON; raises `AdvisorError`.
RunTrial = Callable[[bytes, float], bytes]


def trials_by(
    settings: PlanningSettings, patience: Deadline | None = None, *, is_command: bool = False
) -> Trial | None:
    """Return what tries plans by the settings; None if they plan by the formulas alone.

    A command tries the plan of a short queue itself: to start a process takes longer than its rollouts.
    """
    deadline_s = settings.rollout_deadline_s
    if deadline_s <= 0.0:
        return None
    child = ChildTrial(run=run_trial(patience), deadline_s=deadline_s)
    return KeptTrials(trial=ShortTrial(otherwise=child) if is_command and deadline_s >= _PATIENT_S else child)


def run_trial(patience: Deadline | None = None) -> RunTrial:
    """Return a function that runs tasks in a process of the lowest priority, within the patience of a round."""

    def run(task: bytes, limit_s: float) -> bytes:
        left_s = limit_s if patience is None else _ROUND_RATIO * (patience.until - time.monotonic())
        return run_module(_MODULE, task, patience, limit_s=max(0.1, min(limit_s, left_s)))

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTrial:
    """Tries plans within `deadline_s`; after that, and after a fault, the formulas decide about the lifts alone."""

    run: RunTrial
    deadline_s: float

    def tried(self, case: Case, changes: Sequence[Recommendation]) -> PlanTrial:
        """Return the trial of judged changes; a fault is part of it."""
        if len(case.snapshot.pending) > MOST_WAITING:
            return untried(changes, f"the plan was not rolled out: more than {MOST_WAITING} jobs wait")
        # Commands whose plan holds lifts alone do without the simulator.
        from advisor.sim.live.rollout_trial import ANSWER, TrialTask

        task = TrialTask(
            snapshot=case.snapshot,
            forecasts=case.forecasts,
            settings=case.settings,
            changes=tuple(changes),
            limit_s=self.deadline_s,
        )
        begun = time.monotonic()
        try:
            return ANSWER.validate_json(self.run(task.packed(), self.deadline_s), strict=True)
        except (AdvisorError, ValueError) as err:
            is_late = time.monotonic() - begun >= self.deadline_s
            why = f" within {duration(self.deadline_s)}" if is_late else f": {err}"
            return untried(changes, f"the plan was not rolled out{why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortTrial:
    """Tries the plans of short queues in this process, where nothing can end it, and leaves long ones to another."""

    otherwise: Trial

    def tried(self, case: Case, changes: Sequence[Recommendation]) -> PlanTrial:
        """Return the trial of judged changes, the same as that of a process of its own."""
        if len(case.snapshot.pending) <= _SHORT_QUEUE:
            from advisor.sim.live.rollout_trial import RolloutTrial

            known = Case(snapshot=case.snapshot, forecasts=case.forecasts, settings=case.settings)
            try:
                return RolloutTrial(limit_s=_SHORT_S).rolled_out(known, changes)
            except SimulationError:
                pass  # too long, or without anything to simulate: the other says which
        return self.otherwise.tried(case, changes)
