"""SRSF: the smallest believed remaining time times GPUs first, with preemption."""

from advisor.sim.policies.queue_policy import QueuePolicy
from advisor.sim.queueing import Key

POLICY = QueuePolicy(
    name="srsf",
    summary="shortest remaining service (time x GPUs) first, preemptive",
    key=Key.REMAINING,
    by_gpus=True,
    strict=False,
    preemptive=True,
)
