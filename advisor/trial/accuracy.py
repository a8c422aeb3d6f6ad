"""Measures forecasts by the jobs that ended: how often intervals held, how far medians were off, and order."""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Interval
from advisor.domain.outcome import JobOutcome
from advisor.domain.probation import Coverage, OrderProof, Trust
from advisor.domain.units import DAY_S
from advisor.predict.order_share import WaitedJobs, order_proof

# Plans do not depend on less than a minute, and starts and ends are known only to a round. Without a floor, a start
# after 40 s where 5 s were forecast would be off by a factor of eight, and a few short waits would decide the figure.
FLOOR_S: Final = 60.0
# How `SeenForecast.models` names a run-time model, before its version.
_RUN_TIME: Final = "run_time "


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """The accuracy of the forecasts of `jobs` jobs; both figures are NaN without jobs.

    `coverage_ratio` is the share of 80 % intervals that contained the outcome. Half of the medians were off by
    `error_factor` or more, up or down: 1 is exact, 2 is twice or half of the outcome.
    """

    coverage_ratio: float
    error_factor: float
    jobs: int


NOT_KNOWN: Final = Accuracy(coverage_ratio=math.nan, error_factor=math.nan, jobs=0)


class _Judged(NamedTuple):
    """One forecast compared with its outcome; the error is the absolute binary logarithm of their ratio."""

    held: bool
    error_log2: float


# Compares the forecast of a job with its outcome; None for a job that says nothing of the forecast.
Judge = Callable[[JobOutcome], _Judged | None]


class RecentAccuracy:
    """The accuracy of forecasts over the last jobs that ended, updated with each of them."""

    def __init__(self, judge: Judge, most: int | None = None) -> None:
        """Begin without jobs; `most` bounds how many of the last ones count."""
        self._judge = judge
        self._most = most
        self._last: deque[tuple[float, _Judged]] = deque()
        self._held = 0
        self._errors_log2: list[float] = []  # sorted

    def add(self, outcomes: Iterable[JobOutcome]) -> None:
        """Count jobs that ended, in order of their end; those that say nothing of a forecast do not count."""
        for outcome in outcomes:
            judged = self._judge(outcome)
            if judged is not None:
                self._last.append((outcome.end_time or 0.0, judged))
                self._held += judged.held
                insort(self._errors_log2, judged.error_log2)
            if self._most is not None and len(self._last) > self._most:
                self._forget_first()

    def forget(self, until: float) -> None:
        """Leave out the jobs that ended up to an instant."""
        while self._last and self._last[0][0] <= until:
            self._forget_first()

    @property
    def coverage(self) -> Coverage:
        """How many of the jobs that count lay within their intervals."""
        return Coverage(jobs=len(self._last), inside=self._held)

    @property
    def accuracy(self) -> Accuracy:
        """The accuracy over the jobs that count."""
        if not self._last:
            return NOT_KNOWN
        return Accuracy(
            coverage_ratio=self._held / len(self._last),
            error_factor=2.0 ** median(self._errors_log2),
            jobs=len(self._last),
        )

    def _forget_first(self) -> None:
        _, judged = self._last.popleft()
        self._held -= judged.held
        del self._errors_log2[bisect_left(self._errors_log2, judged.error_log2)]


def start_accuracy(outcomes: Iterable[JobOutcome]) -> Accuracy:
    """Return the accuracy of the first forecasts of starts, over jobs that were not changed."""
    return _accuracy(judged_start, outcomes)


def run_time_accuracy(outcomes: Iterable[JobOutcome]) -> Accuracy:
    """Return the accuracy of the first forecasts of run times, over jobs that were not requeued."""
    return _accuracy(judged_run_time, outcomes)


def run_time_model(models: Iterable[str]) -> str:
    """Return the run-time model among the models of a forecast, "" if there is none."""
    return next((name for name in models if name.startswith(_RUN_TIME)), "")


def by_run_time_model(outcomes: Iterable[JobOutcome], trust: Trust) -> Mapping[str, Sequence[JobOutcome]]:
    """Map run-time models to the jobs that count for them: those that ended since it was last judged."""
    by_model: dict[str, list[JobOutcome]] = {}
    for outcome in outcomes:
        model = run_time_model(outcome.first_forecast.models) if outcome.first_forecast else ""
        if model and (outcome.end_time or 0.0) > trust.since(model):
            by_model.setdefault(model, []).append(outcome)
    return by_model


def coverage_of(outcomes: Iterable[JobOutcome]) -> Coverage:
    """Return how the first forecasts of run times held."""
    recent = RecentAccuracy(judged_run_time)
    recent.add(outcomes)
    return recent.coverage


def judged_start(outcome: JobOutcome) -> _Judged | None:
    """Compare the first forecast of a start with it; None without a forecast, and for a job that was changed."""
    forecast = outcome.first_forecast
    if forecast is None or forecast.start_time is None or outcome.start_time is None or outcome.changes:
        return None
    # Two instants have no ratio; the waits from the time of the forecast have one.
    return _judged(forecast.start_time, outcome.start_time, since=forecast.made_time)


def judged_run_time(outcome: JobOutcome) -> _Judged | None:
    """Compare the first forecast of a run time with it; None without a forecast, and for a job that was requeued."""
    forecast = outcome.first_forecast
    if forecast is None or forecast.run_time_s is None or outcome.run_time_s is None or outcome.requeues:
        return None
    return _judged(forecast.run_time_s, outcome.run_time_s)


def _judged(forecast: Interval, came: float, *, since: float = 0.0) -> _Judged:
    believed_s, came_s = (max(FLOOR_S, instant - since) for instant in (forecast.median, came))
    return _Judged(forecast.low <= came <= forecast.high, abs(math.log2(came_s) - math.log2(believed_s)))


def _accuracy(judge: Judge, outcomes: Iterable[JobOutcome]) -> Accuracy:
    recent = RecentAccuracy(judge)
    recent.add(outcomes)
    return recent.accuracy


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
