"""Slurm with this advisor and the models that ship, which learn from the jobs that end."""

from advisor.sim.learning import LearningForecaster
from advisor.sim.policies.advised import AdvisedSlurm

POLICY = AdvisedSlurm(
    name="forecast",
    summary="Slurm with this advisor, its advice applied, forecast by the shipped models and the jobs ended so far",
    knowledge=lambda _, cluster: LearningForecaster(cluster),
)
