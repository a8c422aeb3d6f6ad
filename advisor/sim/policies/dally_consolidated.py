"""Dally fully consolidated: gangs that the network slows wait for their best place, however long."""

import numpy as np

from advisor.sim.policies.dally import Dally, dally_policy

POLICY = dally_policy(
    "dally-consolidated",
    "dally with timers that never end: waits for the best place",
    lambda: Dally(fixed_s=(np.inf, np.inf)),
)
