"""Slurm with its whole line sorted every so often: the most that a change of order can bring.

Every pending job gets the nice that puts it in its place, least GPU-time over weight first: Smith's rule for the
weighted sum of completion times (W. E. Smith, Naval Research Logistics Quarterly 3, 1956). The weight grows with the
fair-share factor of the job's association and with the time that the job has waited.
"""

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.domain.units import DAY_S
from advisor.sim.engine.tables import ORDER_DTYPE, Order
from advisor.sim.policies.engine_calls import run_ordered
from advisor.sim.policies.slurm import Run, SlurmPolicy
from advisor.sim.simulated_policy import Problem
from advisor.sim.slurm.slurm_state import Slurm


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSort:
    """Sorts the line every `advise_every_s`, by time limits or by true run times."""

    by_limits: bool
    share_exponent: float = 0.0
    ageing_s: float = np.inf

    def __call__(self, problem: Problem, slurm: Slurm) -> Run:
        """Return the loop of a run."""
        order = self.order(problem, slurm)
        return lambda state, until: run_ordered(state, slurm, order, until)

    def order(self, problem: Problem, slurm: Slurm) -> Order:
        """Return the tables by which the line is sorted."""
        jobs, nodes = problem.state.jobs, problem.state.nodes
        # A job without GPUs counts as the GPUs that its CPUs come with.
        cpus_of_gpu = nodes["cpus"].sum() / max(1, nodes["gpus"].sum())
        size = np.where(jobs["gpus"] > 0, jobs["gpus"], np.maximum(1, jobs["cpus"]) / cpus_of_gpu)
        settings = np.zeros(1, ORDER_DTYPE)
        settings["every_s"] = problem.options.advise_every_s
        settings["share_exponent"] = self.share_exponent
        settings["ageing_s"] = self.ageing_s
        settings["weighed_time"] = -np.inf
        return Order(
            settings=settings,
            gpu_s=size * (jobs["limit_s"] if self.by_limits else jobs["work_s"]),
            weight=np.ones(len(slurm.associations)),
            key=np.zeros(len(jobs)),
        )


BY_LIMITS = SlurmPolicy(
    name="order-limits",
    summary="Slurm with its whole line sorted by time limit x GPUs, least first",
    begin=LineSort(by_limits=True),
)
BY_RUN_TIMES = SlurmPolicy(
    name="order-oracle",
    summary="Slurm with its whole line sorted by true run time x GPUs, least first",
    begin=LineSort(by_limits=False),
)
# The rule whose gain costs other users least of those that were tried on the jobs of Graham.
FAIR = SlurmPolicy(
    name="order-fair",
    summary="order-limits, weighted by fair share and by the time waited",
    begin=LineSort(by_limits=True, share_exponent=4.0, ageing_s=DAY_S),
)
