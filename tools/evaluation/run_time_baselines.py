"""What a forecast of run times has to beat, each made in the order of time as the forecast is."""

from bisect import insort
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from advisor.predict.history import runs_of
from advisor.predict.run_time_features import LEVELS
from advisor.predict.run_time_replay import steps
from advisor.predict.run_time_table import EndedJobs

Floats = NDArray[np.float64]
LIMIT, RATIO, LAST_TWO, MEDIAN = "time limit", "median share of the limit", "user's last two runs", "user's median run"


def baselines(jobs: EndedJobs, fitted_on: NDArray[np.bool_], wanted: NDArray[np.bool_]) -> Mapping[str, Floats]:
    """Return what each baseline says of every `wanted` job, `(n_rows,)` in seconds, NaN for the others.

    The last two runs are the rule of Tsafrir, Etsion and Feitelson (2007). For a user without any run both rules of
    the user take the median share of the limit, which is kinder to them than the limit itself.
    """
    runs = runs_of(jobs)
    run_s, limit_s = runs[:, 0], runs[:, 1]
    share = float(np.median(run_s[fitted_on] / limit_s[fitted_on]))
    last_two, median = np.full(len(jobs), np.nan), np.full(len(jobs), np.nan)
    runs_by_user: dict[str, list[float]] = {}
    last_by_user: dict[str, list[float]] = {}
    for step in steps(jobs, wanted):
        for row in step.ended.tolist():
            user = jobs.jobs.user[row]
            insort(runs_by_user.setdefault(user, []), run_s[row])
            last_by_user[user] = [*last_by_user.get(user, [])[-1:], run_s[row]]
        for row in step.rows.tolist():
            user = jobs.jobs.user[row]
            if user in runs_by_user:
                of_user = runs_by_user[user]
                last_two[row] = np.mean(last_by_user[user])
                median[row] = (of_user[(len(of_user) - 1) // 2] + of_user[len(of_user) // 2]) / 2
            else:
                last_two[row] = median[row] = share * limit_s[row]
    return {
        LIMIT: np.where(wanted, limit_s, np.nan),
        RATIO: np.where(wanted, share * limit_s, np.nan),
        LAST_TWO: np.minimum(last_two, limit_s),
        MEDIAN: np.minimum(median, limit_s),
    }


def quantiles_of(said_s: Floats, run_s: Floats, limit_s: Floats, fitted_on: NDArray[np.bool_]) -> Floats:
    """Give a baseline quantiles `(n_rows, len(LEVELS))`: those of the true run time over it where it was fitted."""
    ratio = np.quantile(run_s[fitted_on] / said_s[fitted_on], LEVELS)
    quantiles: Floats = np.minimum(said_s[:, None] * ratio, limit_s[:, None])
    return quantiles
