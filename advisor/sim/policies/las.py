"""LAS (Tiresias): least attained service in a two-level queue, with preemption.

A job sinks to the second level at 16 GPU hours, the limit of the Pollux and Sia ports of Tiresias; inside a level the
order is that of submission. Jobs are never lifted up again, and are always consolidated.
"""

from advisor.sim.policies.queue_policy import QueuePolicy
from advisor.sim.queueing import Key

POLICY = QueuePolicy(
    name="las",
    summary="least attained service (Tiresias): two levels at 16 GPU-hours, preemptive",
    key=Key.ATTAINED,
    strict=False,
    preemptive=True,
    levels_gpu_s=(16 * 3600.0,),
)
