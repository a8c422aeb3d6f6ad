"""SRTF: the shortest believed remaining time first, with preemption."""

from advisor.sim.policies.queue_policy import QueuePolicy
from advisor.sim.queueing import Key

POLICY = QueuePolicy(
    name="srtf",
    summary="shortest remaining time first, preemptive",
    key=Key.REMAINING,
    strict=False,
    preemptive=True,
)
