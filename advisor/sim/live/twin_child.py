"""Runs as a process of its own: runs plain Slurm beside the cluster, and prints the waits with and without advice."""

import json
import pickle
import sys
from collections.abc import Sequence
from dataclasses import asdict

from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Forecasts
from advisor.domain.standings import Stretch
from advisor.errors import AdvisorError
from advisor.sim.live.carried_jobs import PlainStay
from advisor.sim.live.plain_twin import PlainTwin
from advisor.sim.live.wait_sums import stretch_of, stretch_over


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinTask:
    """What the process reads: a twin, the forecasts of its jobs, and the number of draws."""

    twin: PlainTwin
    forecasts: Forecasts
    draws: int

    def packed(self) -> bytes:
        """Return the task as the process reads it."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinAnswer:
    """What the process prints: the waits, and queues of plain Slurm at the end that are as likely."""

    stretch: Stretch
    queues: tuple[tuple[PlainStay, ...], ...]


def answered(task: TwinTask) -> TwinAnswer:
    """Run plain Slurm from each queue that the twin begins with; raises `SimulationError`."""
    twin, count = task.twin, task.twin.queues
    # The draws of each queue and of each stretch have to be independent.
    seed = int(twin.anchor.taken_at) * count
    runs = [
        twin.starts(task.forecasts, draws=max(1, task.draws // count), seed=seed + queue, queue=queue)
        for queue in range(count)
    ]
    queues: Sequence[tuple[PlainStay, ...]] = runs[0].carried if count == 1 else [run.carried[0] for run in runs]
    return TwinAnswer(stretch=stretch_over([stretch_of(run) for run in runs]), queues=tuple(queues))


def main() -> None:
    """Read a task, and print its answer as JSON, or end with the reason."""
    # Written by the process that started this one.
    task: TwinTask = pickle.load(sys.stdin.buffer)  # noqa: S301
    try:
        answer = answered(task)
    except AdvisorError as err:
        sys.exit(str(err))
    json.dump(asdict(answer), sys.stdout)


if __name__ == "__main__":
    main()
