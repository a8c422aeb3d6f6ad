"""Chooses the jobs to put at the head of a line, and the priority that each gets there.

A job is lifted once, shortly before it can start: only the first of a line by the objective are kept at its head. The
priority that a lifted job gets depends on its key alone, so that a job with a lower key that comes later goes ahead of
it without another change.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]

# Keys between these powers of two differ in priority; beyond them jobs get the same one.
_LOWEST_POWER: Final = -20.0
_HIGHEST_POWER: Final = 44.0
# The points of priority for a factor of two between keys: as many as fair share and age can move a job after its lift,
# as far as a nice value can hold 64 of them.
_LEAST_POINTS: Final = 1000.0
_MOST_POINTS: Final = 2.0e7


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifts:
    """The jobs to lift `(n_lifts,)`, as rows, and the priority that each gets."""

    row: Rows
    priority: Floats


def lifts(key: Floats, priority: Floats, lifted: Flags, movable: Flags, *, places: int, scale: float) -> Lifts:
    """Return the jobs among the first `places` by their keys that a job with a higher key precedes.

    All arrays are `(n_jobs,)` and hold the jobs of one line: `priority` as it is now, `lifted` whether it comes from a
    lift, `movable` whether a job can be lifted. `scale` are the points by which fair share and age can move a job.

    A job is lifted once, and again if it has to go before all others, its key 0, and another one precedes it.
    """
    # Jobs that go before all others are kept there, however many they are.
    first = _first(key, max(places, int(np.count_nonzero(key <= 0.0))))
    candidates = first[movable[first] & (~lifted[first] | (key[first] <= 0.0))]
    if not len(candidates):
        return Lifts(row=candidates, priority=np.empty(0))
    # Those that go before all others are lifted before another job can pass them.
    goes_first = (key[candidates] <= 0.0) & ~lifted[candidates]
    row = candidates[_preceded(key, priority, candidates) | goes_first]
    after = lifted_priority(key[row], (priority if lifted.all() else priority[~lifted]).max(), scale)
    rises = after > priority[row]
    return Lifts(row=row[rises], priority=after[rises])


def lifted_priority(key: Floats, highest: float, scale: float) -> Floats:
    """Return the priorities of lifted jobs with some keys, above `highest`, the highest of those not lifted."""
    points = min(max(scale, _LEAST_POINTS), _MOST_POINTS)
    power = np.clip(np.log2(np.maximum(key, np.finfo(np.float64).tiny)), _LOWEST_POWER, _HIGHEST_POWER)
    # A power of two, so that the foot of the lifted jobs hardly ever moves.
    foot = 2.0 ** np.ceil(np.log2(max(2.0, highest + points)))
    return np.asarray(foot + np.round((_HIGHEST_POWER - power) * points))


def _first(key: Floats, places: int) -> Rows:
    """Return the rows of the lowest keys, in no order."""
    if places >= len(key):
        return np.arange(len(key))
    return np.argpartition(key, places - 1)[:places]


def _preceded(key: Floats, priority: Floats, rows: Rows) -> Flags:
    """Return which rows a job with a higher key precedes, or one of the same priority."""
    order = np.argsort(-priority, kind="stable")
    highest_so_far = np.maximum.accumulate(key[order])
    # The place after the last job of the same priority or a higher one: ties are broken by others.
    place = np.searchsorted(-priority[order], -priority[rows], side="right")
    return np.asarray(highest_so_far[place - 1] > key[rows])
