"""Forecasts of one quantity for many rows."""

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Interval
from advisor.features.columns import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals(Columns):
    """80 % intervals, row by row; all arrays `(n_rows,)`.

    `known` is False where the row lies outside of what the model was fitted on, or where the models of an ensemble
    disagree; such a row is not to be relied on.
    """

    low: NDArray[np.float64]
    median: NDArray[np.float64]
    high: NDArray[np.float64]
    known: NDArray[np.bool_]


def listed(intervals: Intervals, *, least: float, most: float) -> list[Interval | None]:
    """Return the intervals as a list, None for those that are not known, or reach below `least` or above `most`."""
    low, median, high = intervals.low, intervals.median, intervals.high
    # NaN compares with nothing, so that it is not sound.
    sound = intervals.known & (np.minimum(low, median) >= least) & (np.maximum(high, median) <= most)
    columns = (low.tolist(), median.tolist(), high.tolist(), sound.tolist())
    return [
        Interval(low=min(low, median), median=median, high=max(high, median)) if known else None
        for low, median, high, known in zip(*columns, strict=True)
    ]
