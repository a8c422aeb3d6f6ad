"""Runs of Dally that no policy's name stands for: with any fixed timers, and watched while they tune themselves."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from advisor.domain.topology import LocalityTier
from advisor.planning.tuning import Tuner, best_wait_s
from advisor.sim.policies.dally import TUNED, Dally, Timers, dally_policy
from advisor.sim.policies.round_policy import RoundPolicy
from advisor.sim.policies.rounds import RoundView
from advisor.sim.run_outcome import Run
from advisor.sim.runner import SimulationOptions, simulate
from advisor.sim.study.cell import Cell, Progress

TUNED_NAME: Final = "dally"
# In the order of a policy's timers.
TIERS: Final = (LocalityTier.NODE, LocalityTier.LEAF)


def timer_worth(tuner: Tuner, gpus: int, tier: LocalityTier, worth_s: float) -> float:
    """Return the tuned timer of a gang to which a tier is worth `worth_s`."""
    bound_s = min(worth_s, tuner.most_s(gpus, tier))
    return float(best_wait_s(tuner.rates(gpus, tier), worth_s, bound_s))


def name_of(timers: Timers) -> str:
    """Return the name of Dally with fixed timers, in seconds, for the fewest nodes and for one leaf."""
    return "/".join(f"{timer_s:g}" for timer_s in timers)


def timers_of(name: str) -> Timers:
    """Return the timers that a name stands for."""
    if name == TUNED_NAME:
        return TUNED
    node, leaf = name.split("/")
    return float(node), float(leaf)


def simulate_timers(cell: Cell, progress: Progress | None) -> Run:
    """Simulate a cell whose trace is drawn in full and whose policy is `dally` or one of fixed timers."""
    make = partial(Dally, fixed_s=timers_of(cell.policy))
    policy = dally_policy(cell.policy, "Dally with the timers of its name", make)
    return simulate(cell.trace, cell.cluster, policy, seed=cell.seed, options=cell.options, progress=progress)


def run_watched(cell: Cell, watch: "Watch") -> Run:
    """Simulate a cell under Dally, and read its timers."""
    policy = RoundPolicy(name=cell.policy, summary="watched", make=lambda: watch, every_s=0.0)
    run = simulate(cell.trace, cell.cluster, policy, seed=cell.seed, options=cell.options)
    watch.read_until(np.inf, cell.options)
    return run


@dataclass(slots=True, kw_only=True)
class Watch:
    """Dally, and how long it would let a gang of `gpus` wait at each of `times`, if any tier saves it `worth_s`.

    `timers_s` are `(n_times, n_worths, n_tiers)` once a run has passed the times.
    """

    times: Sequence[float]
    gpus: int
    worths_s: Sequence[float]
    policy: Dally = field(default_factory=Dally)
    timers_s: list[list[list[float]]] = field(default_factory=list)

    def __call__(self, view: RoundView) -> None:
        """Read the timers at the instants that have passed, then decide."""
        self.read_until(view.now, view.problem.options)
        self.policy(view)

    def read_until(self, now: float, options: SimulationOptions) -> None:
        """Read the timers at the instants up to now."""
        while len(self.timers_s) < len(self.times) and self.times[len(self.timers_s)] <= now:
            tuner = self.policy.tuner(self.times[len(self.timers_s)], options.planning)
            self.timers_s.append(
                [[timer_worth(tuner, self.gpus, tier, worth_s) for tier in TIERS] for worth_s in self.worths_s]
            )
