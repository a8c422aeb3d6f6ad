"""Distributions of run times as curves: level against the logarithm of seconds."""

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.features.columns import Columns
from advisor.predict.run_time_features import GROUPS, LEVELS, SIBLINGS_ENDED

Floats = NDArray[np.float64]

# The bounds of the adaptive levels: wide enough to correct a biased model, narrow enough to stay informative.
LOWEST = np.array([0.01, 0.15, 0.4, 0.65, 0.8])
HIGHEST = np.array([0.2, 0.35, 0.6, 0.85, 0.99])
# Bounds what a forecaster that runs for months holds in memory.
MOST_DUE = 200_000
_MEAN_LEVELS = (np.arange(20) + 0.5) / 20
# The levels at which curves are read: the quantiles, then those of which the mean is made.
LEVELS_READ = np.concatenate([LEVELS, _MEAN_LEVELS])
# How far the curve goes beyond the outermost thresholds.
TAIL = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves(Columns):
    """For each job the share of run times below each of some thresholds; `cap` is the logarithm of its time limit.

    `levels` and `logs` are `(n_rows, n_thresholds)`, rising from 0 to 1 and in the logarithm of seconds.
    """

    levels: Floats
    logs: Floats
    cap: Floats

    def at(self, levels: Floats) -> Floats:
        """Return the run times in seconds, `(n_rows, n)`, at levels `(n_rows, n)`; never above the time limit."""
        log_s = _read(levels, self.logs, self.levels)
        return np.exp(np.minimum(np.maximum(log_s, 0.0), self.cap[:, None]))

    def level_of(self, run_s: Floats) -> Floats:
        """Return the share of run times below `run_s` `(n_rows,)`; 0 where that is 0, 1 from the time limit on."""
        wanted = np.log(np.maximum(run_s, 1e-9))
        levels = _read(wanted[:, None], self.levels, self.logs)[:, 0]
        return np.where(run_s <= 0, 0.0, np.where(wanted >= self.cap, 1.0, levels))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Where the model states shares of run times: logarithms over the anchor, then logarithms over the time limit."""

    over_anchor: Floats
    over_limit: Floats

    def curves(self, shares: NDArray[np.float32], anchor: Floats, cap: Floats, group: NDArray[np.int64]) -> Curves:
        """Return the curves of the model's outputs, `(n_rows, size)`: halfway between its two answers.

        One half knows best where runs repeat the last ones, the other where they end at their limit. Once siblings of
        a job have ended, the former alone counts.
        """
        rising = np.clip(shares.astype(np.float64), 0.0, 1.0)
        cut = len(self.over_anchor)
        near = _Closed.of(rising[:, :cut], anchor, self.over_anchor, self.over_anchor[-1] + TAIL)
        far = _Closed.of(rising[:, cut:], cap, self.over_limit, 0.0)
        logs = np.sort(np.hstack([near.logs, far.logs]), axis=1)
        share = np.where(group == SIBLINGS_ENDED, 1.0, 0.5)[:, None]
        return Curves(levels=share * near.at(logs) + (1.0 - share) * far.at(logs), logs=logs, cap=cap)


@dataclass(frozen=True, slots=True)
class _Closed:
    """One answer of the model as levels `(n_rows, n_points)` that rise from 0 to 1, at `points` over an origin."""

    levels: Floats
    origin: Floats
    points: Floats

    @classmethod
    def of(cls, shares: Floats, origin: Floats, thresholds: Floats, end: float) -> "_Closed":
        none = np.zeros((len(shares), 1))
        points = np.concatenate([[thresholds[0] - TAIL], thresholds, [end]])
        return cls(np.hstack([none, np.maximum.accumulate(shares, axis=1), none + 1.0]), origin, points)

    @property
    def logs(self) -> Floats:
        return self.origin[:, None] + self.points

    def at(self, logs: Floats) -> Floats:
        """Return the levels at logarithms `(n_rows, n)`."""
        wanted = logs - self.origin[:, None]
        above = np.clip(np.searchsorted(self.points, wanted), 1, len(self.points) - 1)
        take = np.take_along_axis
        return _between(
            wanted,
            (self.points[above - 1], self.points[above]),
            (take(self.levels, above - 1, axis=1), take(self.levels, above, axis=1)),
        )


def _read(wanted: Floats, values: Floats, points: Floats) -> Floats:
    """Interpolate rows of `values`, given `at` rising places, at `wanted` ones, `(n_rows, n_wanted)`."""
    above = np.clip((points[:, None, :] < wanted[:, :, None]).sum(axis=2), 1, points.shape[1] - 1)
    take = np.take_along_axis
    return _between(
        wanted,
        (take(points, above - 1, axis=1), take(points, above, axis=1)),
        (take(values, above - 1, axis=1), take(values, above, axis=1)),
    )


@dataclass(frozen=True, slots=True, order=True)
class _Due:
    """A job that counts from `due_time` on; `number` keeps the order of those due at once."""

    due_time: float
    number: int
    group: int
    burst: str
    above_low: bool
    above_high: bool


class _Burst(NamedTuple):
    """How many jobs of a burst have counted, and how many of them ended below either end of their intervals."""

    jobs: int = 0
    below_low: int = 0
    below_high: int = 0

    def with_job(self, due: _Due) -> "_Burst":
        return _Burst(self.jobs + 1, self.below_low + (not due.above_low), self.below_high + (not due.above_high))

    def steps(self, power: float) -> tuple[float, float]:
        """Return how far the burst moves the lowest and the highest level, for a rate of 1."""
        size = max(self.jobs, 1)
        low, high = LEVELS[0] * self.jobs - self.below_low, LEVELS[-1] * self.jobs - self.below_high
        return low * size ** (power - 1.0), high * size ** (power - 1.0)


class AdaptiveLevels:
    """The levels, by group of jobs, at which the curves are read so that stated quantiles are calibrated.

    Adaptive conformal inference (Gibbs and Candes, 2021) at either end of the interval: after a job that ended below
    its low end that level moves down a little, after any other up, so that in the long run the stated share is met. Two
    additions are ours. A job counts only once its time limit would have ended it, since among jobs of one age the short
    ones end first. And a burst of jobs of one user moves the levels once, by the share of its jobs outside.
    """

    def __init__(self, rate: float, step_power: float) -> None:
        """Start with the nominal levels; a burst of `n` jobs moves those at the ends `rate * n**step_power` at most."""
        # `(n_groups, len(LEVELS))`
        self.levels = np.tile(np.array(LEVELS), (len(GROUPS), 1))
        self._rate, self._step_power = rate, step_power
        self._due: list[_Due] = []
        self._noted = 0
        self._bursts: dict[str, _Burst] = {}

    def stated(self, group: NDArray[np.int64], nominal: Floats) -> Floats:
        """Return the levels of the curves, `(n_rows, n)`, for nominal levels `(n_rows, n)`."""
        result = np.empty(nominal.shape)
        for number, levels in enumerate(self.levels):
            rows = group == number
            result[rows] = np.interp(nominal[rows], (0.0, *LEVELS, 1.0), (0.0, *levels, 1.0))
        return result

    def nominal(self, group: NDArray[np.int64], stated: Floats) -> Floats:
        """Return the nominal levels for levels `(n_rows,)` of the curves."""
        result = np.empty(stated.shape)
        for number, levels in enumerate(self.levels):
            rows = group == number
            result[rows] = np.interp(stated[rows], (0.0, *levels, 1.0), (0.0, *LEVELS, 1.0))
        return result

    def note(self, *, due_time: float, group: int, burst: str, quantiles_s: Floats, run_s: float) -> None:
        """Queue the result of a job with the forecast quantiles `(len(LEVELS),)`, to count when it is due."""
        above_low, above_high = not is_below(run_s, quantiles_s[0]), is_below(quantiles_s[-1], run_s)
        self._noted += 1
        if len(self._due) < MOST_DUE:
            heapq.heappush(self._due, _Due(due_time, self._noted, group, burst, bool(above_low), bool(above_high)))

    def settle(self, now: float) -> None:
        """Adapt the levels by the jobs that are due."""
        while self._due and self._due[0].due_time < now:
            due = heapq.heappop(self._due)
            if len(self._bursts) > MOST_DUE:
                self._bursts.clear()
            before = self._bursts.get(due.burst, _Burst())
            after = self._bursts[due.burst] = before.with_job(due)
            # What the burst so far has moved them is taken back.
            moved = np.array(after.steps(self._step_power)) - before.steps(self._step_power)
            levels = self.levels[due.group]
            levels[[0, -1]] += self._rate * moved
            levels[:] = np.clip(levels, LOWEST, HIGHEST)


def is_below(first_s: Floats | float, second_s: Floats | float) -> NDArray[np.bool_]:
    """Return whether run times are shorter than others by more than the rounding of a limit and its logarithm."""
    return np.asarray(np.asarray(first_s) < np.asarray(second_s) * (1.0 - 1e-9), dtype=np.bool_)


def are_inside(run_s: Floats, quantiles_s: Floats) -> NDArray[np.bool_]:
    """Return which run times `(n_rows,)` lie within the outermost of their quantiles `(n_rows, n)`, or at one."""
    return ~is_below(run_s, quantiles_s[:, 0]) & ~is_below(quantiles_s[:, -1], run_s)


def quantiles_and_mean(
    given: Curves, levels: AdaptiveLevels, group: NDArray[np.int64], elapsed_s: Floats
) -> tuple[Floats, Floats]:
    """Return quantiles `(n_rows, len(LEVELS))` and means `(n_rows,)` of run times that have already lasted so long."""
    passed = levels.nominal(group, given.level_of(elapsed_s))
    wanted = passed[:, None] + LEVELS_READ * (1.0 - passed[:, None])
    cap = np.exp(given.cap)
    # A job past its limit is about to end; the forecast of its end is never before now, nor after its limit.
    least = np.minimum(np.maximum(elapsed_s, 0.0), cap)
    run_s = np.minimum(np.maximum(given.at(levels.stated(group, wanted)), least[:, None]), cap[:, None])
    quantiles = np.maximum.accumulate(run_s[:, : len(LEVELS)], axis=1)
    mean_s = np.clip(run_s[:, len(LEVELS) :].mean(axis=1), quantiles[:, 0], cap)
    return quantiles, mean_s


def _between(wanted: Floats, of: tuple[Floats, Floats], to: tuple[Floats, Floats]) -> Floats:
    """Interpolate between two points of each row; where they coincide, the second."""
    width = of[1] - of[0]
    share = np.divide(wanted - of[0], width, out=np.ones_like(wanted), where=width > 0)
    value: Floats = to[0] + np.clip(share, 0.0, 1.0) * (to[1] - to[0])
    return value
