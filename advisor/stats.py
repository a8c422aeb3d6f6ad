"""Intervals of means by Student's t, which planning, trials, simulations and tools share."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

# The quantiles of Student's t for 1 and more degrees of freedom, by the share that a two-sided interval covers, and of
# the normal distribution; beyond the tables, Abramowitz and Stegun 26.7.5.
_T: Final = {
    0.95: (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
           2.120, 2.110, 2.101, 2.093),
    0.8: (3.078, 1.886, 1.638, 1.533),
}  # fmt: skip
_NORMAL: Final = {0.95: 1.959964, 0.8: 1.281552}


def t_quantile(freedom: int, *, coverage: float = 0.95) -> float:
    """Return half the width of a two-sided interval, in standard errors, with at least 1 degree of freedom.

    `coverage` is 0.95 or 0.8.
    """
    table, z = _T[coverage], _NORMAL[coverage]
    if freedom <= len(table):
        return table[freedom - 1]
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def t_quantile_of_tests(freedom: int, tests: int) -> float:
    """Return `t_quantile` for a coverage of 0.95 of all of several intervals together, by Bonferroni."""
    if tests == 1:
        return t_quantile(freedom)
    # Abramowitz and Stegun 26.7.5, with all four terms: few degrees of freedom meet far tails here.
    z = NormalDist().inv_cdf(1 - 0.025 / tests)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return float(z + sum(term / freedom**power for power, term in enumerate(terms, start=1)))


def mean_interval(
    values: NDArray[np.float64] | Sequence[float], *, coverage: float = 0.95
) -> tuple[float, float, float]:
    """Return the mean of values `(n,)` and the ends of its interval, which are NaN below two values."""
    known = np.asarray(values, dtype=np.float64)
    mean = float(known.mean())
    if len(known) < 2:
        return mean, math.nan, math.nan
    reach = t_quantile(len(known) - 1, coverage=coverage) * standard_error(known)
    return mean, mean - reach, mean + reach


def standard_error(values: NDArray[np.float64]) -> float:
    """Return the standard error of the mean of at least two values `(n,)`."""
    return float(values.std(ddof=1)) / math.sqrt(len(values))
