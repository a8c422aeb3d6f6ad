"""Deal the GPUs of a cluster to elastic jobs one by one."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from advisor.planning.growth import GrowthStep, grown


def deal(
    minimum: NDArray[np.integer],
    maximum: NDArray[np.integer],
    gpus: int,
    value: Callable[[int, int], float],
) -> NDArray[np.int64]:
    """Give jobs their minimum in order, then one GPU at a time to the job that values one more the most.

    `minimum` and `maximum` are `(n_jobs,)`; `value(place, size)` is that of a GPU more to the job in that place which
    has `size`, negative infinity where it wants none. Ties go to the first. A job whose minimum is not left gets 0.
    """
    sizes, left, most = [0] * len(minimum), gpus, maximum.tolist()
    for place, least in enumerate(minimum.tolist()):
        if least <= left:
            sizes[place] = least
            left -= least

    def next_step(place: int, size: int) -> GrowthStep | None:
        if not 0 < size < most[place]:
            return None
        worth = value(place, size)
        return GrowthStep(size + 1, worth) if worth > -np.inf else None

    return np.array(grown(sizes, left, next_step), np.int64)
