"""How good forecasts were, by the jobs that ended: how often intervals held, by which factor medians were off."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.actions import Lever
from advisor.domain.forecast import Interval
from advisor.domain.outcome import JobOutcome, SeenChange, SeenForecast
from advisor.domain.probation import NOTHING_ENDED, Coverage, Trust
from advisor.trial.accuracy import (
    NOT_KNOWN,
    RecentAccuracy,
    by_run_time_model,
    coverage_of,
    judged_run_time,
    run_time_accuracy,
    start_accuracy,
)

MADE_TIME = 1_800_000_000.0
CHANGED = (SeenChange(lever=Lever.NICE, applied_time=MADE_TIME),)
SECONDS = st.floats(0.0, 1e6)


def interval(low: float, median: float, high: float) -> Interval:
    return Interval(low=low, median=median, high=high)


def outcome(
    *,
    waited_s: float = 100.0,
    ran_s: float = 500.0,
    wait: Interval | None = None,
    run: Interval | None = None,
) -> JobOutcome:
    """A job that started and ended, with what had been forecast of its wait and its run."""
    start_time = MADE_TIME + waited_s
    instants = None if wait is None else interval(*(MADE_TIME + each for each in (wait.low, wait.median, wait.high)))
    return JobOutcome(
        job_id=1, submit_time=MADE_TIME - 900.0, start_time=start_time, last_start_time=start_time,
        end_time=start_time + ran_s, last_seen_time=start_time + ran_s,
        first_forecast=SeenForecast(made_time=MADE_TIME, start_time=instants, run_time_s=run),
    )  # fmt: skip


def waited(forecast_s: float, came_s: float) -> JobOutcome:
    return outcome(waited_s=came_s, wait=interval(forecast_s, forecast_s, forecast_s))


def ran(forecast_s: float, came_s: float) -> JobOutcome:
    return outcome(ran_s=came_s, run=interval(forecast_s, forecast_s, forecast_s))


def test_coverage_counts_what_was_forecast_and_came() -> None:
    outcomes = [
        outcome(wait=interval(0.0, 50.0, 200.0), run=interval(600.0, 700.0, 900.0)),
        outcome(wait=interval(150.0, 150.0, 200.0)),
        outcome(run=interval(100.0, 200.0, 500.0)),
        replace(outcome(run=interval(100.0, 200.0, 500.0)), requeues=1),
        replace(outcome(wait=interval(0.0, 50.0, 200.0)), start_time=None),
        replace(outcome(wait=interval(150.0, 150.0, 200.0)), changes=CHANGED),
        replace(outcome(), first_forecast=None),
    ]

    starts, run_times = start_accuracy(outcomes), run_time_accuracy(outcomes)

    assert (starts.coverage_ratio, starts.jobs) == (0.5, 2)
    assert (run_times.coverage_ratio, run_times.jobs) == (0.5, 2)


@pytest.mark.parametrize(
    ("outcomes", "factor"),
    [
        ([waited(600.0, 600.0)], 1.0),
        ([waited(600.0, 1200.0)], 2.0),
        ([waited(1200.0, 600.0)], 2.0),
        # Off by 1, 3 and 10: the one in the middle.
        ([waited(600.0, 600.0), waited(300.0, 900.0), waited(6000.0, 600.0)], 3.0),
        # Off by 2, 2, 8 and 8: between the logarithms 1 and 3 lies 2.
        ([waited(600.0, 1200.0), waited(600.0, 300.0), waited(100.0, 800.0), waited(800.0, 100.0)], 4.0),
        # Less than a minute counts as one, before the forecast too.
        ([waited(5.0, 40.0)], 1.0),
        ([waited(0.0, 120.0)], 2.0),
        ([waited(240.0, 0.0)], 4.0),
        ([waited(-300.0, 180.0)], 3.0),
    ],
    ids=["right", "later", "sooner", "odd", "even", "seconds", "at_once", "started_at_once", "already_due"],
)
def test_error_of_starts_is_the_median_factor_between_waits(outcomes: list[JobOutcome], factor: float) -> None:
    found = start_accuracy(outcomes)

    assert found.error_factor == pytest.approx(factor)
    assert found.jobs == len(outcomes)


@pytest.mark.parametrize(
    ("outcomes", "factor"),
    [
        ([ran(3600.0, 3600.0)], 1.0),
        ([ran(3600.0, 900.0)], 4.0),
        ([ran(3600.0, 900.0), ran(600.0, 1200.0), ran(100.0, 100.0)], 2.0),
        ([ran(10.0, 50.0)], 1.0),
        ([ran(10.0, 300.0)], 5.0),
    ],
    ids=["right", "shorter", "odd", "seconds", "longer_than_a_minute"],
)
def test_error_of_run_times_is_the_median_factor(outcomes: list[JobOutcome], factor: float) -> None:
    found = run_time_accuracy(outcomes)

    assert found.error_factor == pytest.approx(factor)
    assert found.jobs == len(outcomes)


def test_error_of_a_start_goes_by_the_median_not_by_the_interval() -> None:
    held = outcome(waited_s=1600.0, wait=interval(100.0, 200.0, 3200.0))

    found = start_accuracy([held])

    assert found.coverage_ratio == 1.0 and found.error_factor == pytest.approx(8.0)


def test_jobs_that_were_changed_or_requeued_tell_no_error() -> None:
    changed = replace(waited(600.0, 6000.0), changes=CHANGED)
    requeued = replace(ran(600.0, 6000.0), requeues=1)

    assert start_accuracy([changed, waited(600.0, 600.0)]).error_factor == 1.0
    assert run_time_accuracy([requeued, ran(600.0, 600.0)]).error_factor == 1.0


def test_no_forecast_has_no_accuracy() -> None:
    found = start_accuracy([outcome()])

    assert found == NOT_KNOWN and run_time_accuracy([]) == NOT_KNOWN
    assert math.isnan(found.coverage_ratio) and math.isnan(found.error_factor) and found.jobs == 0


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=9))
def test_error_is_at_least_one_and_the_same_when_forecast_and_outcome_change_places(
    pairs: list[tuple[float, float]],
) -> None:
    there = run_time_accuracy([ran(*pair) for pair in pairs]).error_factor
    back = run_time_accuracy([ran(came_s, forecast_s) for forecast_s, came_s in pairs]).error_factor

    assert there >= 1.0 and there == pytest.approx(back, rel=1e-6)


@given(
    pairs=st.lists(st.tuples(SECONDS, SECONDS, st.booleans()), max_size=20),
    most=st.integers(1, 8),
    until=st.floats(0.0, 30.0),
)
def test_accuracy_kept_job_by_job_is_that_of_the_jobs_that_count(
    pairs: list[tuple[float, float, bool]], most: int, until: float
) -> None:
    ended = [
        replace(ran(forecast_s, came_s), requeues=int(requeued), end_time=float(number), last_seen_time=float(number))
        for number, (forecast_s, came_s, requeued) in enumerate(pairs)
    ]
    ended = [replace(one, last_start_time=(one.end_time or 0.0) - 1.0) for one in ended]
    counting = [one for one in ended if not one.requeues][-most:]

    recent = RecentAccuracy(judged_run_time, most)
    for one in ended:
        recent.add([one])
    before = recent.accuracy
    recent.forget(until)

    assert before == run_time_accuracy(counting) or not counting
    left = [one for one in counting if (one.end_time or 0.0) > until]
    assert recent.accuracy == run_time_accuracy(left) if left else recent.accuracy is NOT_KNOWN


def by(model: str, outcome: JobOutcome) -> JobOutcome:
    """Return an outcome whose run time a model forecast."""
    assert outcome.first_forecast is not None
    return replace(outcome, first_forecast=replace(outcome.first_forecast, models=("throughput x", model)))


def test_coverage_is_counted_for_the_model_that_made_the_forecast() -> None:
    right, wrong = ran(500.0, 500.0), ran(400.0, 500.0)
    ended = [
        by("run_time a", right),
        by("run_time a", wrong),
        by("run_time b", wrong),
        by("start_time a", right),
        outcome(),
    ]

    by_model = by_run_time_model(ended, Trust())

    assert {model: coverage_of(jobs) for model, jobs in by_model.items()} == {
        "run_time a": Coverage(jobs=2, inside=1),
        "run_time b": Coverage(jobs=1, inside=0),
    }
    assert coverage_of([]) == NOTHING_ENDED


def test_jobs_that_ended_before_a_model_was_last_judged_do_not_count() -> None:
    first = by("run_time a", ran(500.0, 500.0))
    ended_time = first.end_time or 0.0
    later = replace(first, job_id=9, end_time=ended_time + 1.0, last_seen_time=ended_time + 1.0)

    by_model = by_run_time_model([first, later], Trust(since_by_model={"run_time a": ended_time}))

    assert by_model == {"run_time a": [later]}
