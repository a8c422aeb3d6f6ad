"""Slurm with this advisor and forecasts that are 30 % off, or as far as `--speeds noisy=X` says."""

from advisor.sim.knowing import KnownForecaster
from advisor.sim.policies.advised import AdvisedSlurm

NOISE = 0.3

POLICY = AdvisedSlurm(
    name="forecast-noisy",
    summary="Slurm with this advisor, its advice applied, its forecasts the truth within 30 % (or --speeds noisy=X)",
    knowledge=lambda problem, cluster: KnownForecaster(cluster, problem.options.noise or NOISE, problem.rng),
)
