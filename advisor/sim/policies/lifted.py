"""Slurm with this advisor's lifts alone, on the arrays of a simulation: the same choices as on snapshots, and fast.

At fairness `user` and `account` jobs change places in pairs; see `mover` and `exchanger`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

import numpy as np

from advisor.planning.scorers import by_gain, by_price
from advisor.settings import Fairness
from advisor.sim.policies.exchanger import Exchanger, Lowerer, Sorter
from advisor.sim.policies.gang_starts import GangStarts
from advisor.sim.policies.learned_run_times import LearnedRunTimes
from advisor.sim.policies.lifter import Lifter
from advisor.sim.policies.mover import KnownRunTimes, Mover, RunTimes
from advisor.sim.policies.placer import BY_RULE, BY_TRUTH, MARL, Places, with_spare_classes
from advisor.sim.policies.sizer import Sizes, by_score, forecast_speeds, shipped_policy, true_speeds
from advisor.sim.queueing import PAUSED
from advisor.sim.simulated_policy import Problem, drive, leave_out
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_placement import pick_now
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import State

MakeMover = Callable[[Problem, Slurm, RunTimes], Mover]
# What runs the compiled loop up to an instant.
Run = Callable[[State, Slurm, float], int]


class CycleStep(Protocol):
    """What changes jobs between the passes of slurmctld."""

    def cycle(self, state: State, now: float) -> None:
        """Change jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftedSlurm:
    """The model of slurmctld whose pending jobs are lifted every `advise_every_s`.

    `fairness` is used in place of that of the options, and `mover` in place of the one that the fairness calls for.
    `sizes` sizes the elastic jobs as well, `places` gives nodes to gangs.
    """

    name: str
    summary: str
    run_times: Callable[[Problem, Slurm], RunTimes]
    fairness: Fairness | None = None
    mover: MakeMover | None = None
    sizes: Sizes | None = None
    places: Places | None = None
    requeue_loses_work: bool = True

    def run(self, problem: Problem) -> State:
        """Run the compiled loop from cycle to cycle."""
        if self.fairness is not None:
            limits = replace(problem.options.limits, fairness=self.fairness)
            problem = replace(problem, options=replace(problem.options, limits=limits))
        if self.places is not None:
            problem = replace(problem, state=with_spare_classes(problem.state))
        slurm = build_slurm(problem.state, problem.trace, problem.cluster)
        leave_out(problem.state, lambda row: pick_now(problem.state, slurm, row, np.inf))
        make = self.mover or (Lifter.of if problem.options.limits.lifts_pass_others else Exchanger.of)
        mover = make(problem, slurm, self.run_times(problem, slurm))
        steps, run = self._steps(problem, mover)
        every_s = problem.options.advise_every_s
        return drive(problem, problem.state, lambda state, until: _follow(mover, steps, run, state, until, every_s))

    def _steps(self, problem: Problem, mover: Mover) -> tuple[list[CycleStep], Run]:
        """Return what else is done in every cycle, and what runs the compiled loop in between."""
        steps: list[CycleStep] = []
        if self.sizes is not None:
            steps.append(self.sizes.sizer(problem, mover))
        if self.places is None:
            return steps, run_slurm
        placer = self.places.placer(problem, mover)
        return (steps, GangStarts(placer).run) if self.places.at_starts else ([*steps, placer], placer.run)


def _follow(mover: Mover, steps: Sequence[CycleStep], run: Run, state: State, until: float, every_s: float) -> int:
    """Run the compiled loop up to an instant, with changes every `every_s`."""
    while True:
        cycle_time = (state.tally["now"][0] // every_s + 1.0) * every_s
        stopped = run(state, mover.slurm, min(until, cycle_time))
        if stopped != PAUSED or until < cycle_time:
            return stopped
        if state.tally["pending"][0]:
            mover.cycle(state, cycle_time)
        for step in steps:
            step.cycle(state, cycle_time)


def by_limits(problem: Problem, _slurm: Slurm) -> RunTimes:
    """Return the run times that are expected without forecasts: a share of the time limits."""
    return KnownRunTimes(problem.state.jobs["limit_s"] * problem.options.planning.used_limit_ratio_low)


def by_run_times(problem: Problem, _slurm: Slurm) -> RunTimes:
    """Return the true run times, as far as the time limits let jobs run."""
    return KnownRunTimes(np.minimum(problem.state.jobs["work_s"], problem.state.jobs["limit_s"]))


BY_LIMITS = LiftedSlurm(
    name="lift",
    summary="Slurm with this advisor's lifts alone, run times a share of the time limits",
    run_times=by_limits,
)
BY_FORECASTS = LiftedSlurm(
    name="lift-forecast",
    summary="lift, run times forecast by the shipped model and the jobs that ended so far",
    run_times=LearnedRunTimes,
)
BY_RUN_TIMES = LiftedSlurm(
    name="lift-oracle",
    summary="lift, run times the truth",
    run_times=by_run_times,
)

BY_SIZE = LiftedSlurm(
    name="lift-site",
    summary="lift at fairness site: by size alone",
    run_times=by_limits,
    fairness="site",
)
BY_TRUE_SIZE = LiftedSlurm(
    name="lift-site-oracle",
    summary="lift at fairness site, run times the truth",
    run_times=by_run_times,
    fairness="site",
)

# What sizes add to lifts: by rule, and by the learned policy.
SIZED: Final = tuple(
    LiftedSlurm(
        name=f"{name}{suffix}",
        summary=f"{base}, elastic jobs sized {words}",
        run_times=run_times,
        sizes=Sizes(speeds=speeds, choose=choose, knows_run_s=run_times is not by_limits),
    )
    for base, suffix, run_times, speeds in (
        ("lift", "", by_limits, forecast_speeds),
        ("lift-oracle", "-oracle", by_run_times, true_speeds),
    )
    for name, words, choose in (
        ("dl2", "by the policy dl2", shipped_policy),
        ("optimus-sizes", "by the run time that each GPU saves (Optimus)", partial(by_score, by_gain)),
        ("price-sizes", "by their run time and the wait that they cost others", partial(by_score, by_price)),
    )
)

SIZED_BY_FORECASTS: Final = LiftedSlurm(
    name="price-forecast",
    summary="price-sizes, run times forecast as in lift-forecast",
    run_times=LearnedRunTimes,
    sizes=Sizes(speeds=forecast_speeds, choose=partial(by_score, by_price), knows_run_s=True),
)

# What nodes for gangs add to lifts; those of a plugin are asked for at every start.
PLACED: Final = (
    LiftedSlurm(
        name="lift+place",
        summary="lift, and gangs near the head of the line are given nodes by best fit with least interference",
        run_times=by_limits,
        places=BY_RULE,
    ),
    LiftedSlurm(
        name="lift+place-oracle",
        summary="lift+place, run times and interference the truth",
        run_times=by_run_times,
        places=BY_TRUTH,
    ),
    LiftedSlurm(
        name="lift+marl",
        summary="lift, and gangs near the head of the line are given nodes by the policy marl",
        run_times=by_limits,
        places=MARL,
    ),
    LiftedSlurm(
        name="lift+plugin",
        summary="lift, and every gang is given nodes as it starts, as a plugin of Slurm could",
        run_times=by_limits,
        places=replace(BY_RULE, at_starts=True),
    ),
    LiftedSlurm(
        name="lift+plugin-marl",
        summary="lift+plugin, nodes given by the policy marl",
        run_times=by_limits,
        places=replace(MARL, at_starts=True),
    ),
    LiftedSlurm(
        name="lift+plugin-oracle",
        summary="lift+plugin, run times and interference the truth",
        run_times=by_run_times,
        places=replace(BY_TRUTH, at_starts=True),
    ),
)

_SCOPES: Final[tuple[Fairness, ...]] = ("user", "account")
# What lifts gain where no job passes one of another group.
SCOPED = tuple(
    policy
    for scope in _SCOPES
    for policy in (
        LiftedSlurm(
            name=f"lift-{scope}",
            summary=f"lift at fairness {scope}: short jobs change places with long ones of their {scope}",
            run_times=by_limits,
            fairness=scope,
        ),
        LiftedSlurm(
            name=f"lift-{scope}-oracle",
            summary=f"lift at fairness {scope}, run times the truth",
            run_times=by_run_times,
            fairness=scope,
        ),
        LiftedSlurm(
            name=f"order-{scope}",
            summary=f"Slurm with the jobs of each {scope} sorted in its places by time limit x GPUs, least first",
            run_times=by_limits,
            fairness=scope,
            mover=Sorter.of,
        ),
        LiftedSlurm(
            name=f"order-{scope}-oracle",
            summary=f"order-{scope}, by true run time x GPUs",
            run_times=by_run_times,
            fairness=scope,
            mover=Sorter.of,
        ),
        LiftedSlurm(
            name=f"lower-{scope}",
            summary=f"order-{scope}, but jobs are only put back, as coordinators of accounts can",
            run_times=by_limits,
            fairness=scope,
            mover=Lowerer.of,
        ),
    )
)
