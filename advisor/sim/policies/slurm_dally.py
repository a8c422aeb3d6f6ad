"""Slurm with this advisor's delay timers and none of its other advice: what Dally's waiting brings within Slurm."""

from advisor.domain.plan import Lever
from advisor.ports import Forecaster, NoForecaster
from advisor.sim.knowing import KnownForecaster
from advisor.sim.policies.advised import AdvisedSlurm
from advisor.sim.policy import Problem
from advisor.sim.slurm_cluster import SimulatedSlurm


def _knowledge(problem: Problem, cluster: SimulatedSlurm) -> Forecaster:
    """Return what `--speeds` says is believed: the truth, the truth within a share, or the rules."""
    noise = problem.options.noise
    return NoForecaster() if noise is None else KnownForecaster(cluster, noise, problem.rng)


POLICY = AdvisedSlurm(
    name="slurm+dally",
    summary="Slurm with this advisor's self-tuning delay timers alone, applied",
    knowledge=_knowledge,
    levers=frozenset({Lever.SWITCHES, Lever.NODE_RANGE}),
)
