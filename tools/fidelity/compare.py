"""Compares the starts of a replay with the recorded ones."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

LEAST_CORRELATION = 0.97
# The mean difference may be this long, and longer where jobs wait longer.
ALLOWED_S = 3.0
ALLOWED_RATIO = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class StartComparison:
    """Says how well a replay agrees with what happened.

    `correlation` is Spearman's, of the orders in which jobs started. `mean_difference_s` is the mean over all jobs of
    the absolute difference of the two starts; it can be 3 s plus 3 % of `mean_delay_s`, the mean time that the jobs
    waited in reality, from their submission to their start.
    """

    job_count: int
    correlation: float
    mean_difference_s: float
    largest_difference_s: float
    mean_delay_s: float

    @property
    def allowed_difference_s(self) -> float:
        """The largest mean difference that still agrees."""
        return ALLOWED_S + ALLOWED_RATIO * self.mean_delay_s

    @property
    def passed(self) -> bool:
        """Whether order and times both agree well enough; an order that cannot be compared does not."""
        return self.correlation >= LEAST_CORRELATION and self.mean_difference_s <= self.allowed_difference_s


def compare(
    live_starts: Mapping[int, float], model_starts: Mapping[int, float], *, submits: Mapping[int, float]
) -> StartComparison:
    """Compare starts by job id, in seconds on one clock; a job that one side never started is an error."""
    if live_starts.keys() != model_starts.keys():
        odd = sorted(live_starts.keys() ^ model_starts.keys())
        raise ValueError(f"jobs that only one side started: {', '.join(map(str, odd))}")
    if not live_starts:
        raise ValueError("there is no job to compare")
    ids = sorted(live_starts)
    live = np.array([live_starts[job_id] for job_id in ids])
    model = np.array([model_starts[job_id] for job_id in ids])
    submitted = np.array([submits[job_id] for job_id in ids])
    differences_s = np.abs(model - live)
    return StartComparison(
        job_count=len(ids),
        correlation=spearman(live, model),
        mean_difference_s=float(differences_s.mean()),
        largest_difference_s=float(differences_s.max()),
        mean_delay_s=float((live - submitted).mean()),
    )


def spearman(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Return Spearman's correlation of two `(n,)` arrays; NaN where one is constant."""
    if not np.ptp(left) or not np.ptp(right):
        return float("nan")
    return float(spearmanr(left, right).statistic)
