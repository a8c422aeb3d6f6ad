"""Grows jobs by marginal gain: the remaining GPUs go to jobs step by step, the step worth most per GPU first.

The greedy rule of Optimus (Peng et al., EuroSys 2018). The caller gives the value of a step.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple


class GrowthStep(NamedTuple):
    """The next larger size of a job, and its value per GPU added."""

    size: int
    value: float


def grown(
    sizes: Sequence[int],
    gpus: int,
    next_step: Callable[[int, int], GrowthStep | None],
    take: Callable[[int, int], bool] = lambda _place, _gpus: True,
) -> list[int]:
    """Return the sizes of jobs, `(n_jobs,)`, after steps that use at most `gpus` more.

    `next_step(place, size)` returns the next step of a job by its index, None where it wants no more.
    `take(place, gpus)` takes GPUs for a job and returns whether they were free; where they were not, the job grows no
    further. Ties go to the first job.
    """
    sizes, left = list(sizes), gpus
    if left <= 0:
        return sizes
    # A heap of (value negated, place, size): the lowest comes first.
    steps = [(-step.value, place, step.size) for place, size in enumerate(sizes) if (step := next_step(place, size))]
    heapq.heapify(steps)
    while left > 0 and steps:
        _, place, size = steps[0]
        added = size - sizes[place]
        step = None
        if added <= left and take(place, added):
            sizes[place] = size
            left -= added
            step = next_step(place, size)
        if step is None:
            heapq.heappop(steps)
        else:
            heapq.heapreplace(steps, (-step.value, place, step.size))
    return sizes
