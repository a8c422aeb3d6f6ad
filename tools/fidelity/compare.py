"""Compares the starts of a replay with the recorded ones."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

LEAST_CORRELATION = 0.97
# Runs that one side alone had after a preemption, as a share of all.
MOST_UNMATCHED_RATIO = 0.05
# The mean difference may be this long, and longer where jobs wait longer.
ALLOWED_S = 3.0
ALLOWED_RATIO = 0.03


# When each run of a job began, by its id and the number of the run from 0, in seconds on one clock.
Starts = Mapping[tuple[int, int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartComparison:
    """Says how well a replay agrees with what happened.

    `correlation` is Spearman's, of the orders in which jobs started. `mean_difference_s` is the mean over all runs of
    the absolute difference of the two starts; it can be 3 s plus 3 % of `mean_delay_s`, the mean time that the jobs
    waited in reality, from their submission, or preemption, to their start. Runs after a preemption that one side alone
    had are left out of both, and counted in `unmatched_count`.
    """

    job_count: int
    run_count: int
    unmatched_count: int
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
        """Whether order, times and preemptions agree well enough; an order that cannot be compared does not."""
        is_near = self.mean_difference_s <= self.allowed_difference_s
        is_matched = self.unmatched_count <= MOST_UNMATCHED_RATIO * self.run_count
        return self.correlation >= LEAST_CORRELATION and is_near and is_matched


def compare(live_starts: Starts, model_starts: Starts, *, due: Starts) -> StartComparison:
    """Compare starts; `due` has when each run could begin. A job that one side never started is an error."""
    unmatched = live_starts.keys() ^ model_starts.keys()
    if odd := sorted(job_id for job_id, number in unmatched if number == 0):
        raise ValueError(f"jobs that only one side started: {', '.join(map(str, odd))}")
    if not live_starts:
        raise ValueError("there is no job to compare")
    runs = sorted(live_starts.keys() & model_starts.keys())
    live = np.array([live_starts[run] for run in runs])
    model = np.array([model_starts[run] for run in runs])
    could = np.array([due[run] for run in runs])
    differences_s = np.abs(model - live)
    return StartComparison(
        job_count=len({job_id for job_id, _ in runs}),
        run_count=len(live_starts),
        unmatched_count=len(unmatched),
        correlation=spearman(live, model),
        mean_difference_s=float(differences_s.mean()),
        largest_difference_s=float(differences_s.max()),
        mean_delay_s=float((live - could).mean()),
    )


def spearman(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Return Spearman's correlation of two `(n,)` arrays; NaN where one is constant."""
    if not np.ptp(left) or not np.ptp(right):
        return float("nan")
    return float(spearmanr(left, right).statistic)
