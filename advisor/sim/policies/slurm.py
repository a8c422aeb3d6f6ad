"""Plain Slurm: multifactor priority, the main pass and backfill, without an advisor."""

from dataclasses import dataclass

import numpy as np

from advisor.sim.simulated_policy import Problem, drive, leave_out
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_placement import pick_now
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSlurm:
    """The model of slurmctld, left alone."""

    name: str = "slurm"
    summary: str = "plain Slurm: multifactor priority and backfill, no advisor"
    requeue_loses_work: bool = True

    def run(self, problem: Problem) -> State:
        """Run the compiled loop."""
        slurm = build_slurm(problem.state, problem.trace, problem.cluster)
        leave_out(problem.state, lambda row: pick_now(problem.state, slurm, row, np.inf))
        return drive(problem, problem.state, lambda state, until: run_slurm(state, slurm, until))


POLICY = PlainSlurm()
