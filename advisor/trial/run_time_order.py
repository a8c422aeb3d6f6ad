"""Compares how run-time forecasts and time limits order the jobs of a site that ended."""

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from advisor.domain.outcome import JobOutcome
from advisor.domain.probation import OrderProof
from advisor.domain.units import DAY_S
from advisor.predict.order_share import WaitedJobs, order_proof


def order_of(outcomes: Iterable[JobOutcome]) -> OrderProof:
    """Return how the means of first forecasts, as plans order by them, order jobs, and how their time limits do.

    Jobs without a limit, a known run time or such a forecast say nothing of it, nor do those that were requeued. Jobs
    of one user, size, limit and day of submission are a burst.
    """
    rows = [
        (outcome, outcome.start_time, outcome.run_time_s, outcome.first_forecast.run_mean_s, outcome.time_limit_s)
        for outcome in outcomes
        if outcome.first_forecast is not None and not outcome.requeues
    ]
    known = [row for row in rows if None not in row and row[-1]]
    jobs = [outcome for outcome, *_ in known]
    # `(n_jobs, 4)`
    numbers = np.array([row[1:] for row in known], dtype=np.float64).reshape(-1, 4)
    start_time, run_s, said_s, limit_s = numbers.T
    waited = WaitedJobs(
        submit_time=np.array([job.submit_time for job in jobs], dtype=np.float64),
        start_time=start_time,
        gpus=np.array([max(job.gpus, 1) for job in jobs], dtype=np.float64),
        burst=_codes((job.user, job.gpus, job.time_limit_s, job.submit_time // DAY_S) for job in jobs),
        user=_codes(job.user for job in jobs),
    )
    return order_proof(waited, np.minimum(run_s, limit_s), said_s, limit_s)


def _codes(keys: Iterable[Hashable]) -> NDArray[np.int64]:
    """Number keys in the order in which they first occur, `(n_keys,)`."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
