"""Slurm with this advisor going by rules: no forecasts, time limits and assumed curves only."""

from advisor.ports import NoForecaster
from advisor.sim.policies.advised import AdvisedSlurm

POLICY = AdvisedSlurm(
    name="rules",
    summary="Slurm with this advisor's rule-based planner, its advice applied",
    knowledge=lambda *_: NoForecaster(),
)
