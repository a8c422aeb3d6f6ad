"""Tries plans on the model of slurmctld; as a process of its own, it tries the plan of a cycle and prints the trial."""

import pickle
import sys
from collections.abc import Sequence
from dataclasses import field
from typing import Final

from pydantic import TypeAdapter

from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Forecasts
from advisor.domain.plan import Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.errors import SimulationError
from advisor.planning.case import Case
from advisor.planning.plan_trial import PlanTrial, TrialSize, try_plan, untried
from advisor.settings import PlanningSettings
from advisor.sim.live.slurm_rollout import SlurmRollout


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutTrial:
    """Try plans in this process; equal inputs give equal trials with any number of threads.

    With a `limit_s`, in seconds, a plan is not tried where that would clearly take longer.
    """

    size: TrialSize = field(default_factory=TrialSize)
    # Half as many as a rollout takes by default: what a change does to a mean shows near the head of the line.
    places: int = 50
    threads: int = 2
    limit_s: float = 0.0

    def tried(self, case: Case, changes: Sequence[Recommendation]) -> PlanTrial:
        """Return the trial of judged changes; where there is nothing to simulate, that of none."""
        try:
            return self.rolled_out(case, changes)
        except SimulationError as err:
            return untried(changes, str(err))

    def rolled_out(self, case: Case, changes: Sequence[Recommendation]) -> PlanTrial:
        """Return the trial of judged changes; raises `SimulationError` for none, and where it would take too long."""
        rollout = SlurmRollout(places=self.places, threads=self.threads, limit_s=self.limit_s)
        return try_plan(case, changes, rollout, self.size)


ANSWER: Final = TypeAdapter(PlanTrial)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTask:
    """What the process reads: the judged changes of a cycle, what they were planned from, and the time that it has."""

    snapshot: Snapshot
    forecasts: Forecasts
    settings: PlanningSettings
    changes: tuple[Recommendation, ...]
    limit_s: float

    def packed(self) -> bytes:
        """Return the task as the process reads it."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)

    def tried(self) -> PlanTrial:
        """Try the plan."""
        case = Case(snapshot=self.snapshot, forecasts=self.forecasts, settings=self.settings)
        return RolloutTrial(limit_s=self.limit_s).tried(case, self.changes)


def main() -> None:
    """Read a task, and print its trial as JSON."""
    # Written by the process that started this one.
    task: TrialTask = pickle.load(sys.stdin.buffer)  # noqa: S301
    sys.stdout.buffer.write(ANSWER.dump_json(task.tried()))


if __name__ == "__main__":
    main()
