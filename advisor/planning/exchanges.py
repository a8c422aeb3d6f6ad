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


def sorted_places(key: Floats, priority: Floats, group: NDArray[np.integer]) -> Floats:
    """Return the priorities of jobs whose groups stand in the order of their keys in their own places, `(n_jobs,)`.

    The arrays are `(n_jobs,)`. Jobs with equal keys keep their order.
    """
    after = np.empty(len(key))
    after[np.lexsort((-priority, key, group))] = priority[np.lexsort((-priority, group))]
    return after


def lowered_places(key: Floats, priority: Floats, group: NDArray[np.integer]) -> Floats:
    """Return priorities, none above the present one, at which no job stands before one of its group with a lower key.

    The arrays are as `sorted_places` takes them. A job goes to one point below the last one with a lower key that it
    precedes.
    """
    after = priority.astype(np.float64)
    order = np.lexsort((-priority, key, group))
    firsts = np.flatnonzero(np.diff(group[order])) + 1
    for rows in np.split(order, firsts):
        after[rows] = np.minimum.accumulate(after[rows])
    return np.where(after < priority, after - 1.0, after)
