"""Policies that differ only in the order of their queue and in whether they preempt, and one with levels, LAS."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.units import HOUR_S
from advisor.sim.engine.tables import build_victims
from advisor.sim.policies.engine_calls import pick, run_queue
from advisor.sim.profiles import NEUTRAL, load_profiles
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
            spread=None if self.spread is None else self.spread(problem.state),
        )
        victims = build_victims(problem.state)
        leave_out(problem.state, lambda row: pick(problem.state, row, int(problem.state.jobs["gpus"][row])))
        return drive(problem, problem.state, lambda state, until: run_queue(state, queue, victims, until))


# Their first fully connected layer, or their embeddings, outweigh the rest: 103 of 138 million in VGG-16, 38 of 61 in
# AlexNet, nearly all in the recommenders.
SKEWED: Final = ("alexnet", "dlrm", "ncf", "recommendation", "vgg16")


def is_spread(state: State) -> NDArray[np.bool_]:
    """Mark the jobs that LAS does not consolidate, `(n_jobs,)`: those of models of which no tensor holds half."""
    names = load_profiles().names
    together = np.array([name.partition("/")[0] in (*SKEWED, NEUTRAL) for name in names])
    spread: NDArray[np.bool_] = ~together[state.jobs["profile"]]
    return spread


# LAS (Tiresias): a job sinks to the second level at 16 GPU hours, the limit of the Pollux and Sia ports of Tiresias;
# inside a level the order is that of submission. Jobs are never lifted up again. Where one tensor holds much of a
# model, its job is consolidated; any other takes the closest place that is free, and preempts the jobs with the least
# claim, wherever they run. Our interpretation: skewed is a model of which one tensor holds half, and one not known.
LAS = QueuePolicy(
    name="las",
    summary="least attained service (Tiresias): two levels at 16 GPU-hours, preemptive, consolidates skewed models",
    key=Key.ATTAINED,
    strict=False,
    preemptive=True,
    levels_gpu_s=(16 * HOUR_S,),
    spread=is_spread,
)
