"""Measures forecasts by the jobs that ended: how often intervals held, and how far medians were off."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

from advisor.domain.forecast import Interval
from advisor.domain.outcome import JobOutcome

# Plans do not depend on less than a minute, and starts and ends are known only to a round. Without a floor, a start
# after 40 s where 5 s were forecast would be off by a factor of eight, and a few short waits would decide the figure.
FLOOR_S: Final = 60.0


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


def start_accuracy(outcomes: Iterable[JobOutcome]) -> Accuracy:
    """Return the accuracy of the first forecasts of starts, over jobs that were not changed."""
    return _accuracy(_starts(outcomes))


def run_time_accuracy(outcomes: Iterable[JobOutcome]) -> Accuracy:
    """Return the accuracy of the first forecasts of run times, over jobs that were not requeued."""
    return _accuracy(_run_times(outcomes))


def _starts(outcomes: Iterable[JobOutcome]) -> Iterator[_Judged]:
    for outcome in outcomes:
        forecast = outcome.first_forecast
        if forecast is None or forecast.start_time is None or outcome.start_time is None or outcome.changes:
            continue
        # Two instants have no ratio; the waits from the time of the forecast have one.
        yield _judged(forecast.start_time, outcome.start_time, since=forecast.made_time)


def _run_times(outcomes: Iterable[JobOutcome]) -> Iterator[_Judged]:
    for outcome in outcomes:
        forecast = outcome.first_forecast
        if forecast is None or forecast.run_time_s is None or outcome.run_time_s is None or outcome.requeues:
            continue
        yield _judged(forecast.run_time_s, outcome.run_time_s)


def _judged(forecast: Interval, came: float, *, since: float = 0.0) -> _Judged:
    believed_s, came_s = (max(FLOOR_S, instant - since) for instant in (forecast.median, came))
    return _Judged(forecast.low <= came <= forecast.high, abs(math.log2(came_s) - math.log2(believed_s)))


def _accuracy(judged: Iterable[_Judged]) -> Accuracy:
    pairs = list(judged)
    if not pairs:
        return NOT_KNOWN
    return Accuracy(
        coverage_ratio=sum(pair.held for pair in pairs) / len(pairs),
        error_factor=2.0 ** median(pair.error_log2 for pair in pairs),
        jobs=len(pairs),
    )
