"""Forecasts of one quantity for many rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """80 % intervals, row by row; all arrays `(n_rows,)`.

    `known` is False where the row lies outside of what the model was fitted on, or where the models of an ensemble
    disagree; such a row is not to be relied on.
    """

    low: NDArray[np.float64]
    median: NDArray[np.float64]
    high: NDArray[np.float64]
    known: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.median)
