"""Slurm with this advisor: the live cycle reads the simulated Slurm, and what it recommends is applied."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from advisor.cycle import Cycle
from advisor.domain.plan import Action, Outcome, present_value, undone
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
        advisor = _Advisor(cluster, cycle)
        every_s = problem.options.advise_every_s

        def step(state: State, until: float) -> int:
            cluster.state = state
            while True:
                following = (state.tally["now"][0] // every_s + 1.0) * every_s
                stopped = run_slurm(state, slurm, min(until, following))
                if stopped != PAUSED or until < following:
                    return stopped
                advisor.advise()

        return drive(problem, problem.state, step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A change that has to be taken back at `due_time`, unless the job has started or somebody changed it since."""

    action: Action
    due_time: float


class _Advisor:
    """Runs cycles, applies what no rule refused, and takes back what is due."""

    def __init__(self, cluster: SimulatedSlurm, cycle: Cycle) -> None:
        self._cluster = cluster
        self._cycle = cycle
        self._leases: dict[int, Lease] = {}

    def advise(self) -> None:
        """Run one cycle."""
        if self._cluster.state.tally["pending"][0] == 0:
            self._leases.clear()
            return
        self._take_back()
        record = self._cycle.run(self._cluster, outstanding=frozenset(self._leases))
        now = self._cluster.now
        for change in record.recommendations:
            receipt = self._cluster.apply(change.action)
            if receipt.outcome is Outcome.APPLIED and change.revert_after_s is not None:
                self._leases[change.job_id] = Lease(action=change.action, due_time=now + change.revert_after_s)

    def _take_back(self) -> None:
        """Take back what is due, and forget the leases of jobs that are no longer pending."""
        for job_id, lease in list(self._leases.items()):
            job = self._cluster.job_by_id(job_id)
            if job is None or present_value(job, lease.action) != lease.action.after:
                del self._leases[job_id]
            elif lease.due_time <= self._cluster.now:
                self._cluster.apply(undone(lease.action))
                del self._leases[job_id]
