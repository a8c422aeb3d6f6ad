"""Dally with fixed timers: those that the auto-tuner assumes before it has seen anything, for every gang."""

from advisor.sim.policies.dally import Dally, dally_policy

NODE_S, LEAF_S = 600.0, 1800.0

POLICY = dally_policy(
    "dally-fixed",
    "dally with fixed timers, 10 min for nodes and 30 min for a leaf",
    lambda: Dally(fixed_s=(NODE_S, LEAF_S)),
)
