"""Slurm with this advisor: the live cycle reads the simulated Slurm, and what it recommends is applied."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from advisor.applying import Applier
from advisor.cycle import Cycle
from advisor.ports import Forecaster
from advisor.sim.policy import Problem, drive, leave_out
from advisor.sim.queueing import PAUSED
from advisor.sim.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm_placement import pick_now
from advisor.sim.slurm_state import build_slurm
from advisor.sim.slurmctld import run_slurm
from advisor.sim.state import State

Knowledge = Callable[[Problem, SimulatedSlurm], Forecaster]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedSlurm:
    """The model of slurmctld with the advisor's cycle every `advise_every_s`; nothing is read while none is pending."""

    name: str
    summary: str
    knowledge: Knowledge
    requeue_loses_work: bool = True

    def run(self, problem: Problem) -> State:
        """Run the compiled loop from cycle to cycle."""
        slurm = build_slurm(problem.state, problem.trace, problem.cluster)
        cluster = SimulatedSlurm(problem.trace, problem.cluster, problem.state, slurm)
        leave_out(problem.state, lambda row: pick_now(problem.state, slurm, row, np.inf))
        forecaster = self.knowledge(problem, cluster)
        cycle = Cycle(planning=problem.options.planning, limits=problem.options.limits, forecaster=forecaster)
        applier = Applier(source=cluster, actuator=cluster, cycle=cycle)
        every_s = problem.options.advise_every_s

        def step(state: State, until: float) -> int:
            cluster.state = state
            while True:
                following = (state.tally["now"][0] // every_s + 1.0) * every_s
                stopped = run_slurm(state, slurm, min(until, following))
                if stopped != PAUSED or until < following:
                    return stopped
                advise(applier, cluster)

        return drive(problem, problem.state, step)


def advise(applier: Applier, cluster: SimulatedSlurm) -> None:
    """Run one cycle; while no job is pending, no change is out either."""
    if cluster.state.tally["pending"][0]:
        applier.step()
    elif applier.journal.leases():
        applier.reconcile(cluster.snapshot())
