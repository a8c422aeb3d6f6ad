"""Runs of Dally that no policy's name stands for: with any fixed timers, and watched while they tune themselves."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from advisor.domain.topology import LocalityTier
from advisor.planning.tuning import Tuner, best_wait_s
from advisor.sim.cell import Cell, Progress
from advisor.sim.policies.dally import TUNED, Dally, Timers, dally_policy
from advisor.sim.policies.round_policy import RoundPolicy
from advisor.sim.profiles import load_profiles
from advisor.sim.rounds import RoundView
from advisor.sim.run_outcome import Run
from advisor.sim.simulated_policy import Problem, SimulationOptions, Stopwatch
from advisor.sim.state import build_state, draw_faults, outcomes

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


def policy_of(name: str) -> RoundPolicy:
    """Return Dally with the timers that a name stands for."""
    return dally_policy(name, "Dally with the timers of its name", partial(Dally, fixed_s=timers_of(name)))


def simulate_timers(cell: Cell, progress: Progress | None) -> Run:
    """Simulate a cell whose trace is drawn in full and whose policy is `dally` or one of fixed timers."""
    return run_policy(cell, policy_of(cell.policy), progress)


def run_watched(cell: Cell, watch: "Watch") -> Run:
    """Simulate a cell under Dally, and read its timers."""
    run = run_policy(cell, RoundPolicy(name=cell.policy, summary="watched", make=lambda: watch, every_s=0.0))
    watch.read_until(np.inf, cell.options)
    return run


def run_policy(cell: Cell, policy: RoundPolicy, progress: Progress | None = None) -> Run:
    """Simulate a cell under a policy that has no name; run times are known."""
    state = build_state(
        cell.trace,
        cell.cluster,
        load_profiles(),
        ideal=cell.options.execution == "ideal",
        loses_work=policy.requeue_loses_work,
    )
    rng = np.random.default_rng(cell.seed)
    state = state._replace(faults=draw_faults(state, cell.cluster, rng))
    watch = Stopwatch()
    problem = Problem(
        trace=cell.trace,
        cluster=cell.cluster,
        state=state,
        options=cell.options,
        rng=rng,
        tell=progress or _say_nothing,
        watch=watch,
    )
    state = policy.run(problem)
    return Run(
        trace=cell.trace,
        policy=cell.policy,
        seed=cell.seed,
        cluster_gpus=cell.cluster.gpus,
        outcomes=outcomes(state),
        segments=state.segments[: int(state.tally["segments"][0])],
        wall_s=watch.elapsed_s,
        peak_rss_mib=0.0,
    )


def _say_nothing(share: float) -> None:
    """Ignore the progress of a run."""


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
