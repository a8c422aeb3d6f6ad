"""Deal the GPUs of a cluster to elastic jobs one by one."""

import heapq
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


def deal(
    minimum: NDArray[np.integer],
    maximum: NDArray[np.integer],
    gpus: int,
    value: Callable[[int, int], float],
) -> NDArray[np.int64]:
    """Give every job its minimum, the first first, then GPU after GPU to the job that values one more the most.

    `minimum` and `maximum` are `(n_jobs,)`; `value(place, size)` is that of a GPU more to the job in that place which
    has `size`, negative infinity where it wants none. Ties go to the first. A job whose minimum is not left gets 0.
    """
    sizes = np.zeros(len(minimum), np.int64)
    left = gpus
    for place, least in enumerate(minimum.tolist()):
        if least <= left:
            sizes[place] = least
            left -= least
    elastic = np.flatnonzero((sizes > 0) & (sizes < maximum)).tolist()
    if left == 0 or not elastic:
        return sizes
    # A heap of (value negated, place): the lowest comes first.
    wishes = [(-value(place, int(sizes[place])), place) for place in elastic]
    heapq.heapify(wishes)
    while left > 0 and wishes and wishes[0][0] < np.inf:
        place = wishes[0][1]
        sizes[place] += 1
        left -= 1
        if sizes[place] < maximum[place]:
            heapq.heapreplace(wishes, (-value(place, int(sizes[place])), place))
        else:
            heapq.heappop(wishes)
    return sizes
