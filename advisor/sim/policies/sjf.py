"""SJF: the shortest believed run time first, without preemption."""

from advisor.sim.policies.queue_policy import QueuePolicy
from advisor.sim.queueing import Key

POLICY = QueuePolicy(name="sjf", summary="shortest job first; the head blocks the queue", key=Key.RUN_TIME, strict=True)
