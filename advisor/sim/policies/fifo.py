"""FIFO: submit order; the first job that does not fit blocks all behind it."""

from advisor.sim.policies.queue_policy import QueuePolicy
from advisor.sim.queueing import Key

POLICY = QueuePolicy(
    name="fifo", summary="first come, first served; the head blocks the queue", key=Key.SUBMIT, strict=True
)
