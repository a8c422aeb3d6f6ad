"""Chooses pairs of jobs of one group that change places: the smaller one goes to the place of the larger one.

A group are the jobs of one user, or of one account. The places of a group do not change, only who stands in them, so
that as many jobs as before stand ahead of every job of another group.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """Pairs of jobs, as rows `(n_pairs,)`: `up[i]` goes to the place of `down[i]`, and that one to its place."""

    up: Rows
    down: Rows


def exchanges(
    key: Floats, priority: Floats, group: NDArray[np.integer], can_rise: Flags, can_give: Flags, *, places: int
) -> Exchanges:
    """Return the exchanges that fill the first `places` of a line with the lowest keys of each group.

    All arrays are `(n_jobs,)` and hold the jobs of one line in its present order: `priority` as it is now, `group`
    whose places a job can take. A job is in one pair at most. Of equal keys the last in the line goes up, so that the
    larger job is passed by all of them at once.
    """
    free = can_rise.copy()
    up: list[int] = []
    down: list[int] = []
    for place in np.flatnonzero(can_give[:places]).tolist():
        if place in up:
            continue
        behind = np.flatnonzero(free & (group == group[place]) & (key < key[place]) & (priority < priority[place]))
        if len(behind):
            chosen = int(behind[key[behind] == key[behind].min()][-1])
            free[[chosen, place]] = False
            up.append(chosen)
            down.append(place)
    return Exchanges(up=np.array(up, dtype=np.intp), down=np.array(down, dtype=np.intp))
