"""QSSF (Helios): the smallest predicted duration times GPUs first, without preemption.

The prediction is ours: the mean run time of the user's jobs of this size that ended so far, and before the first has
ended what `speeds` says.
"""

from advisor.sim.policies.queue_policy import QueuePolicy
from advisor.sim.queueing import Key

POLICY = QueuePolicy(
    name="qssf",
    summary="quasi-shortest service first: time predicted from the user's history x GPUs",
    key=Key.PREDICTED,
    by_gpus=True,
    strict=True,
)
