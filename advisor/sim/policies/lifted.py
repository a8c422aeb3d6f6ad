"""Slurm with this advisor's lifts alone, on the arrays of a simulation: the same choices as on snapshots, and fast.

At fairness `user` and `account` jobs change places in pairs; see `mover` and `exchanger`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.settings import Fairness
from advisor.sim.learned_run_times import LearnedRunTimes
from advisor.sim.policies.exchanger import Exchanger, Lowerer, Sorter
from advisor.sim.policies.lifter import Lifter
from advisor.sim.policies.mover import KnownRunTimes, Mover, RunTimes
from advisor.sim.queueing import PAUSED
from advisor.sim.simulated_policy import Problem, drive, leave_out
from advisor.sim.slurm_placement import pick_now
from advisor.sim.slurm_state import Slurm, build_slurm
from advisor.sim.slurmctld import run_slurm
from advisor.sim.state import State

MakeMover = Callable[[Problem, Slurm, RunTimes], Mover]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftedSlurm:
    """The model of slurmctld whose pending jobs are lifted every `advise_every_s`.

    `fairness` is used in place of that of the options, and `mover` in place of the one that the fairness calls for.
    """

    name: str
    summary: str
    run_times: Callable[[Problem, Slurm], RunTimes]
    fairness: Fairness | None = None
    mover: MakeMover | None = None
    requeue_loses_work: bool = True

    def run(self, problem: Problem) -> State:
        """Run the compiled loop from cycle to cycle."""
        if self.fairness is not None:
            limits = replace(problem.options.limits, fairness=self.fairness)
            problem = replace(problem, options=replace(problem.options, limits=limits))
        slurm = build_slurm(problem.state, problem.trace, problem.cluster)
        leave_out(problem.state, lambda row: pick_now(problem.state, slurm, row, np.inf))
        make = self.mover or (Lifter.of if problem.options.limits.lifts_pass_others else Exchanger.of)
        mover = make(problem, slurm, self.run_times(problem, slurm))
        every_s = problem.options.advise_every_s
        return drive(problem, problem.state, lambda state, until: _follow(mover, state, until, every_s))


def _follow(mover: Mover, state: State, until: float, every_s: float) -> int:
    """Run the compiled loop up to an instant, with changes every `every_s`."""
    while True:
        cycle_time = (state.tally["now"][0] // every_s + 1.0) * every_s
        stopped = run_slurm(state, mover.slurm, min(until, cycle_time))
        if stopped != PAUSED or until < cycle_time:
            return stopped
        if state.tally["pending"][0]:
            mover.cycle(state, cycle_time)


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
