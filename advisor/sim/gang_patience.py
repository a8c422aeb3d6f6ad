"""The waits of gangs under delay scheduling."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class GangPatience(NamedTuple):
    """The waits of gangs, and what their timers depend on; shapes in brackets.

    The tiers of timers are those of a node and a leaf, as in `LocalityTier`.
    """

    declined_s: NDArray[np.float64]  # (n_jobs,): for how long a gang has had a place and declined it, since it ran
    spent_s: NDArray[np.float64]  # (n_jobs,): for how long it did before
    declining: NDArray[np.int8]  # (n_jobs,): whether it has one since the last pass
    pass_time: NDArray[np.float64]  # (1,): of the last pass
    reached: NDArray[np.int8]  # (n_jobs,): the tier it started at, -1 before
    gang_class: NDArray[np.int32]  # (n_jobs,)
    edges_s: NDArray[np.float64]  # (n_stretches + 1,): `tuning.EDGES_S`
    rate_per_s: NDArray[np.float64]  # (n_classes * 2, n_stretches): by class and tier, as of `tuning.rates`
    fixed_s: NDArray[np.float64]  # (2,) by tier; NaN: the rates decide
    least_inflation: NDArray[np.float64]  # (1,): a place that costs less is accepted at once
    longest_s: NDArray[np.float64]  # (1,): tuned timers let no gang decline for longer in all
    best_tier: NDArray[np.int8]  # (n_shapes,): what a shape has on the idle cluster
    missing: NDArray[np.int8]  # (n_shapes,): space for what a shape lacked in a pass
