"""Fitting start times: what is fitted on, how rows are weighted, how intervals are calibrated."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import ConfigError
from advisor.fit.publish import publish
from advisor.fit.start_time_fit import Polls, calibrate, factors, fit_polls, log_wait, weights
from advisor.predict.library import Library
from advisor.predict.start_time import COLUMNS, KIND, StartTimeForecaster
from tests.fit.start_time_journal import poll_row, poll_rows, write
from tools.data.graham_polls import fit_start_time, read_polls

DAY_S = 86_400.0


@pytest.fixture(scope="module")
def polls(tmp_path_factory: pytest.TempPathFactory) -> Polls:
    return read_polls([write(tmp_path_factory.mktemp("polls") / "polls.csv", poll_rows())])[0]


def test_fit_of_the_same_files_is_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "polls.csv", poll_rows(days=10))

    first, second = (fit_start_time([path], seed=3) for _ in range(2))

    assert first.parameters == second.parameters
    assert (first.regressors[0].predict(first.probe) == second.regressors[0].predict(second.probe)).all()


def test_published_fit_is_served(tmp_path: Path, polls: Polls) -> None:
    library = Library(tmp_path, tmp_path / "none")
    publish(fit_polls(polls, seen_until=polls.seen_until, seed=0), tmp_path, "site-1", today="2026-11-21")
    library.use(KIND, "site-1")

    found = StartTimeForecaster.from_bundle(library.load(KIND)).forecast(polls.table)

    errors = log_wait(found.median) - log_wait(polls.wait_s)
    assert float(np.mean(errors**2)) < 0.5 * float(np.var(log_wait(polls.wait_s)))
    assert found.known.mean() > 0.9


def test_what_came_after_the_last_moment_changes_nothing(polls: Polls) -> None:
    until = float(polls.poll_time[0] + 12.5 * DAY_S)
    known = polls.take(polls.poll_time <= until)
    otherwise = replace(known, wait_s=np.where(known.start_time > until, known.wait_s + 1e6, known.wait_s))

    fitted, again = (fit_polls(each, seen_until=until, seed=0) for each in (known, otherwise))

    assert known.wait_s.tolist() != otherwise.wait_s.tolist()
    assert fitted.parameters == again.parameters
    assert (fitted.regressors[0].predict(fitted.probe) == again.regressors[0].predict(again.probe)).all()


def test_long_wait_counts_for_those_that_could_not_be_seen(tmp_path: Path) -> None:
    rows = [poll_row(day=day, job=1 + day, poll_wait_sec=60) for day in range(9)]
    rows.append(poll_row(day=0, job=10, poll_wait_sec=8 * DAY_S))
    polls, _ = read_polls([write(tmp_path / "polls.csv", rows)])

    weight = weights(polls, seen_until=float(polls.poll_time.max() + 3600.0))

    assert weight[:9] == pytest.approx(1.0)
    assert weight[9] == pytest.approx(5.0)


def test_burst_counts_as_one_job(tmp_path: Path) -> None:
    rows = [poll_row(job=60 * number) for number in range(4)] + [poll_row(job=1)]
    polls, _ = read_polls([write(tmp_path / "polls.csv", rows)])

    weight = weights(polls, seen_until=polls.seen_until)

    assert weight[:4].sum() == pytest.approx(weight[4])


def test_calibrated_interval_covers_what_it_was_calibrated_on(polls: Polls) -> None:
    calibration = calibrate(polls, seen_until=polls.seen_until, seed=0)

    low, high = factors(calibration)

    error = calibration.scaled_error
    assert np.mean((error >= low) & (error <= high)) == pytest.approx(0.8, abs=0.02)


def test_polls_weigh_the_same_in_the_calibration(polls: Polls) -> None:
    calibration = calibrate(polls, seen_until=polls.seen_until, seed=0)
    first = calibration.poll_time == calibration.poll_time[0]

    heavier = replace(calibration, weight=np.where(first, 50.0, 1.0) * calibration.weight)

    assert factors(heavier) == pytest.approx(factors(calibration))


def test_calibration_looks_at_the_latter_half_of_the_polls(polls: Polls) -> None:
    calibration = calibrate(polls, seen_until=polls.seen_until, seed=0)

    assert len(calibration.true) == 400
    assert np.unique(calibration.block).tolist() == [0, 1, 2, 3]


def test_what_was_measured_goes_into_the_card(polls: Polls) -> None:
    fitted = fit_polls(polls, seen_until=polls.seen_until, seed=0)

    assert fitted.columns == COLUMNS
    assert 0.6 < fitted.metrics["covered by the 80 % interval, later polls"] < 1.0


def test_too_little_to_fit_on_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "polls.csv", poll_rows(days=3))

    with pytest.raises(ConfigError, match="120 rows of 3 polls are too few"):
        fit_start_time([path], seed=0)


def test_polls_before_anything_started_are_refused(tmp_path: Path) -> None:
    rows = [poll_row(day=day, job=day * 100 + job, poll_wait_sec=9 * DAY_S) for day in range(6) for job in range(50)]
    path = write(tmp_path / "polls.csv", rows)

    with pytest.raises(ConfigError, match="no job was seen to start between the polls"):
        fit_start_time([path], seed=0)
