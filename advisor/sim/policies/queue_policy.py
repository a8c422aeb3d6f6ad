"""Policies that differ only in the order of their queue and in whether they preempt."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.sim.engine.tables import build_victims
from advisor.sim.policies.engine_calls import pick, run_queue
from advisor.sim.queueing import GivenKey, Key, build_queue
from advisor.sim.simulated_policy import Problem, drive, leave_out
from advisor.sim.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """One queue; the fields are those of `build_queue`. All jobs are consolidated but those that `spread` marks."""

    name: str
    summary: str
    key: Key | GivenKey
    by_gpus: bool = False
    strict: bool = True
    preemptive: bool = False
    levels_gpu_s: tuple[float, ...] = ()
    promote_ratio: float = 0.0
    requeue_loses_work: bool = False
    spread: Callable[[State], NDArray[np.bool_]] | None = None

    def run(self, problem: Problem) -> State:
        """Run the compiled loop."""
        queue = build_queue(
            problem.state,
            key=self.key,
            by_gpus=self.by_gpus,
            strict=self.strict,
            preemptive=self.preemptive,
            levels_gpu_s=self.levels_gpu_s,
            promote_ratio=self.promote_ratio,
            spread=None if self.spread is None else self.spread(problem.state),
        )
        victims = build_victims(problem.state)
        leave_out(problem.state, lambda row: pick(problem.state, row, int(problem.state.jobs["gpus"][row])))
        return drive(problem, problem.state, lambda state, until: run_queue(state, queue, victims, until))
