"""Runs as a process of its own: runs plain Slurm beside the cluster, and prints the waits with and without advice."""

import json
import pickle
import sys
from dataclasses import asdict, dataclass

from advisor.domain.forecast import Forecasts
from advisor.errors import AdvisorError
from advisor.sim.plain_twin import PlainTwin
from advisor.sim.wait_sums import stretch_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinTask:
    """What the process reads: a twin, the forecasts of its jobs, and the number of draws."""

    twin: PlainTwin
    forecasts: Forecasts
    draws: int

    def packed(self) -> bytes:
        """Return the task as the process reads it."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)


def main() -> None:
    """Read a task, and print its stretch as JSON, or end with the reason."""
    # Written by the process that started this one.
    task: TwinTask = pickle.load(sys.stdin.buffer)  # noqa: S301
    try:
        # Draws of stretches that follow each other have to be independent.
        starts = task.twin.starts(task.forecasts, draws=task.draws, seed=int(task.twin.anchor.taken_at))
    except AdvisorError as err:
        sys.exit(str(err))
    json.dump(asdict(stretch_of(starts)), sys.stdout)


if __name__ == "__main__":
    main()
