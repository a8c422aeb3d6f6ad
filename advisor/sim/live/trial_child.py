"""Runs as a process of its own: tries the plan of a cycle, and prints what it found."""

import pickle
import sys
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter

from advisor.domain.forecast import Forecasts
from advisor.domain.plan import Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.planning.case import Case
from advisor.planning.plan_trial import PlanTrial
from advisor.settings import PlanningSettings
from advisor.sim.live.rollout_trial import RolloutTrial

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
