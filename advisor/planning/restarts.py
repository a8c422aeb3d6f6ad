"""Finds the running jobs that end sooner if they restart from a checkpoint with more GPUs, by the steps of a window.

Slurm cannot scale a running job. Each step is the choice of a policy or a rule; whether the restart pays is not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import numpy as np

from advisor.features.steps import Choose, ElasticJobs, Reals, Steps, Supply, climb, from_sizes_held
from advisor.planning.preemption import REQUEUE_HOLD_S, pays
from advisor.settings import QUANTUM_S, PlanningSettings

# A job that has not started with more GPUs by then gets its own size back.
GROWTH_LEASE_S: Final = 300.0
# A job that ends sooner than this is not restarted.
SHORTEST_REST_S: Final = QUANTUM_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A larger size of a running job, by its place in a window: the run time that it saves, and what that costs."""

    place: int
    gpus: int
    speed: float  # over that at the present size
    saved_s: float
    cost_s: float

    @property
    def gain_s(self) -> float:
        """The job completion time that is saved."""
        return self.saved_s - self.cost_s


def restarts(
    jobs: ElasticJobs, supply: Supply, choose: Choose, *, lost_s: Reals, settings: PlanningSettings
) -> Iterator[Restart]:
    """Yield the restarts of the jobs of a window that pay, the one with the highest gain first.

    The jobs are at the sizes that they hold, `run_s` is what is left of their run times there, and `lost_s` `(n_jobs,)`
    the work that each would lose. Sizes are those that `choose` reaches, and the ones below, as not every size fits;
    each added GPU has to add the share of a held one's speed that the settings ask for.
    """
    held = from_sizes_held(jobs)
    reached = climb(held, supply, choose)
    found = [
        Restart(
            place=place,
            gpus=int(gpus),
            speed=speed,
            saved_s=float(jobs.run_s[place] * (1.0 - 1.0 / speed)),
            cost_s=float(lost_s[place]) + settings.restart_s + REQUEUE_HOLD_S,
        )
        for place in np.flatnonzero(jobs.is_there & (jobs.run_s >= SHORTEST_REST_S)).tolist()
        for gpus, speed in _larger(jobs, place, int(held.first[place]), int(reached[place]))
        if gpus > jobs.asked[place] and (speed - 1.0) >= settings.min_marginal_ratio * (gpus / jobs.asked[place] - 1.0)
    ]
    paying = (restart for restart in found if pays(restart.saved_s, restart.cost_s))
    # The sort is stable: among equals the first job of the window goes first, at its smallest size.
    yield from sorted(paying, key=attrgetter("gain_s"), reverse=True)


def _larger(jobs: ElasticJobs, place: int, held: int, reached: int) -> Iterator[tuple[float, float]]:
    """Yield the sizes of a job above the one that it holds, with the speeds over that."""
    speed = jobs.speed[place]
    for rung in range(held + 1, reached + 1):
        yield float(jobs.sizes[place, rung]), float(speed[rung] / speed[held])


def by_marginal_gain(steps: Steps, least_ratio: float) -> Reals:
    """Return the run time that each added GPU saves, 0 where it adds less speed than a share of the others' mean."""
    gain = (steps.run_s - steps.run_after_s) / np.maximum(steps.gpus_after - steps.gpus, 1.0)
    return np.where(steps.columns[..., 4] >= least_ratio, gain, 0.0)
