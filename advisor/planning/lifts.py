"""Chooses the jobs to put at the head of a line, and the priority that each gets there.

A job is lifted once, shortly before it can start: only the first of a line by the objective are kept at its head. The
priority that a lifted job gets depends on its key alone, so that a job with a lower key that comes later goes ahead of
it without another change.

What is lifted and has not started is bounded, by its GPU-time at the time limits, of all users together and of each
while jobs of others wait. An array counts with all its tasks, since all of them carry its lift. In a lane all that was
lifted within some time counts, also if it has started, so that all other jobs together lose no more than that.
"""

import sys
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.settings import Limits, PlanningSettings

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]

# Keys between these powers of two differ in priority; beyond them jobs get the same one.
LOWEST_POWER: Final = -20.0
HIGHEST_POWER: Final = 44.0
# The points of priority for a factor of two between keys: as many as fair share and age can move a job after its lift,
# as far as a nice value can hold 64 of them.
LEAST_POINTS: Final = 1000.0
MOST_POINTS: Final = 2.0e7


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much of a line is lifted at most: `places` jobs at its head, and `gpu_s` of GPU-time.

    One user has at most `user_ratio` of both while jobs of others wait. A job of one task is lifted beyond that if
    nothing else is lifted; what goes before all others is lifted in any case, and counts.
    """

    places: int
    gpu_s: float
    user_ratio: float

    @classmethod
    def of(cls, planning: PlanningSettings, limits: Limits, capacity: float) -> "Bounds":
        """Return the bounds for a pool of `capacity` GPUs; a lane is bounded by its GPU-time alone."""
        work_s = limits.lane_ratio * limits.fairness_window_s if limits.is_lane else planning.lift_work_s
        return cls(
            places=sys.maxsize if limits.is_lane else planning.lift_places,
            gpu_s=capacity * work_s,
            user_ratio=planning.lift_user_ratio,
        )

    def most_gpu_s(self, users: int) -> float:
        """Return the GPU-time that can be lifted of one user, where jobs of this number of users wait."""
        return self.gpu_s * (self.user_ratio if users > 1 else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stakes:
    """What jobs take if they are lifted, all `(n_jobs,)`: `gpu_s` is that of all waiting `tasks` of an array.

    It is what they take at most, or in a lane what is expected. `user` numbers the users from 0. In a lane `spent` is
    the GPU-time of each that was lifted lately, `(n_users,)`; None elsewhere.
    """

    gpu_s: Floats
    tasks: Floats
    user: Rows
    spent: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifts:
    """The jobs to lift `(n_lifts,)`, as rows, and the priority that each gets."""

    row: Rows
    priority: Floats


def lifts(
    key: Floats, priority: Floats, lifted: Flags, movable: Flags, stakes: Stakes, *, bounds: Bounds, scale: float
) -> Lifts:
    """Return the jobs at the head of a line by their keys that a job with a higher key precedes, within bounds.

    All arrays are `(n_jobs,)` and hold the jobs of one line: `priority` as it is now, `lifted` whether it comes from a
    lift, `movable` whether a job can be lifted. `scale` are the points by which fair share and age can move a job.

    A job is lifted once, and again once it has to go before all others, its key 0.
    """
    first = _first(key, stakes.user, bounds)
    candidates = first[movable[first] & (~lifted[first] | (key[first] <= 0.0))]
    if not len(candidates):
        return Lifts(row=candidates, priority=np.empty(0))
    # Those that go before all others are lifted before another job can pass them, if one can that is not lifted itself.
    others = priority[~lifted]
    goes_first = (key[candidates] <= 0.0) & bool(len(others))
    row = candidates[_preceded(key, priority, candidates) | goes_first]
    after = lifted_priority(key[row], (others if len(others) else priority).max(), scale)
    kept = np.flatnonzero(after > priority[row])
    kept = kept[_within(key, lifted, stakes, bounds, row[kept])]
    return Lifts(row=row[kept], priority=after[kept])


def lifted_priority(key: Floats, highest: float, scale: float) -> Floats:
    """Return the priorities of lifted jobs with some keys, above `highest`, the highest of those not lifted."""
    points = min(max(scale, LEAST_POINTS), MOST_POINTS)
    power = np.clip(np.log2(np.maximum(key, np.finfo(np.float64).tiny)), LOWEST_POWER, HIGHEST_POWER)
    # A power of two, so that the foot of the lifted jobs hardly ever moves.
    foot = 2.0 ** np.ceil(np.log2(max(2.0, highest + points)))
    return np.asarray(foot + np.round((HIGHEST_POWER - power) * points))


def _first(key: Floats, user: Rows, bounds: Bounds) -> Rows:
    """Return the rows at the head of the line, lowest key first; one user has more than a share only of what is left.

    Jobs that go before all others are kept there, however many they are.
    """
    order = np.argsort(key, kind="stable")
    places = max(bounds.places, int(np.count_nonzero(key <= 0.0)))
    if places >= len(key):
        return order
    by_user = np.argsort(user[order], kind="stable")
    begin = np.searchsorted(user[order][by_user], np.arange(user.max() + 1))
    number = np.empty(len(key), dtype=np.intp)
    number[by_user] = np.arange(len(key)) - begin[user[order][by_user]]
    is_beyond = (number >= max(1.0, bounds.places * bounds.user_ratio)) & (key[order] > 0.0)
    return order[np.argsort(is_beyond, kind="stable")][:places]


def _within(key: Floats, lifted: Flags, stakes: Stakes, bounds: Bounds, rows: Rows) -> Flags:
    """Return which rows can be lifted beside what is, lowest key first."""
    waiting = np.bincount(stakes.user[lifted], stakes.gpu_s[lifted], minlength=int(stakes.user.max(initial=-1)) + 1)
    of_user, is_lane = (waiting, False) if stakes.spent is None else (stakes.spent.copy(), True)
    used, most = sum(of_user.tolist()), bounds.most_gpu_s(len(set(stakes.user.tolist())))
    kept = np.zeros(len(rows), dtype=np.bool_)
    order = np.lexsort((rows, key[rows]))
    least_left = np.minimum.accumulate(stakes.gpu_s[rows[order]][::-1])[::-1].tolist()
    for place, least in zip(order.tolist(), least_left, strict=True):
        row = rows[place]
        # In a lane many rows are asked for, and few fit.
        if is_lane and key[row] > 0.0 and used + least > bounds.gpu_s:
            break
        gpu_s, user, is_one = float(stakes.gpu_s[row]), stakes.user[row], stakes.tasks[row] <= 1.0 and not is_lane
        fits_user = of_user[user] + gpu_s <= most or (is_one and of_user[user] == 0.0)
        fits = fits_user and (used + gpu_s <= bounds.gpu_s or (is_one and used == 0.0))
        kept[place] = fits or key[row] <= 0.0
        if kept[place] and not lifted[row]:
            of_user[user] += gpu_s
            used += gpu_s
    return kept


def _preceded(key: Floats, priority: Floats, rows: Rows) -> Flags:
    """Return which rows a job with a higher key precedes, or one of the same priority."""
    order = np.argsort(-priority, kind="stable")
    highest_so_far = np.maximum.accumulate(key[order])
    # The place after the last job of the same priority or a higher one: ties are broken by others.
    place = np.searchsorted(-priority[order], -priority[rows], side="right")
    return np.asarray(highest_so_far[place - 1] > key[rows])
