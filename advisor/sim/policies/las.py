"""LAS (Tiresias): least attained service in a two-level queue, with preemption, consolidating skewed models only.

A job sinks to the second level at 16 GPU hours, the limit of the Pollux and Sia ports of Tiresias; inside a level the
order is that of submission. Jobs are never lifted up again. Where one tensor holds much of a model, its job is
consolidated; any other takes the closest place that is free, and preempts the jobs with the least claim, wherever
they run. Our interpretation: skewed is a model of which one tensor holds half, and a model that is not known.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.units import HOUR_S
from advisor.sim.policies.queue_policy import QueuePolicy
from advisor.sim.profiles import NEUTRAL, load_profiles
from advisor.sim.queueing import Key
from advisor.sim.state import State

# Their first fully connected layer, or their embeddings, outweigh the rest: 103 of 138 million in VGG-16, 38 of 61 in
# AlexNet, nearly all in the recommenders.
SKEWED: Final = ("alexnet", "dlrm", "ncf", "recommendation", "vgg16")


def is_spread(state: State) -> NDArray[np.bool_]:
    """Mark the jobs that are not consolidated, `(n_jobs,)`."""
    names = load_profiles().names
    together = np.array([name.partition("/")[0] in (*SKEWED, NEUTRAL) for name in names])
    spread: NDArray[np.bool_] = ~together[state.jobs["profile"]]
    return spread


POLICY = QueuePolicy(
    name="las",
    summary="least attained service (Tiresias): two levels at 16 GPU-hours, preemptive, consolidates skewed models",
    key=Key.ATTAINED,
    strict=False,
    preemptive=True,
    levels_gpu_s=(16 * HOUR_S,),
    spread=is_spread,
)
