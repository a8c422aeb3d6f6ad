"""Slurm with this advisor knowing the truth: true run times, scaling, cost of spreading; the most it can gain."""

from advisor.sim.knowing import KnownForecaster
from advisor.sim.policies.advised import AdvisedSlurm

POLICY = AdvisedSlurm(
    name="forecast-oracle",
    summary="Slurm with this advisor, its advice applied, its forecasts the truth",
    knowledge=lambda problem, cluster: KnownForecaster(cluster, 0.0, problem.rng),
)
