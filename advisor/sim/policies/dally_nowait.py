"""Dally without delay scheduling: the closest place that is free is taken at once."""

from advisor.sim.policies.dally import Dally, dally_policy

POLICY = dally_policy(
    "dally-nowait",
    "dally with all timers at 0: takes the closest place that is free",
    lambda: Dally(fixed_s=(0.0, 0.0)),
)
