"""Fitting start times: what is fitted on, how rows are weighted, how intervals are calibrated."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.domain.job import ArrayRecord, Job, JobState
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import HOUR_S
from advisor.errors import ConfigError, JournalError
from advisor.features.backlog import backlog_table
from advisor.fit.fitted import Fitted
from advisor.fit.publish import publish
from advisor.fit.start_time_fit import HeldOutForecasts, Polls, calibrate, factors, fit_polls, log_wait, weights
from advisor.fit.start_time_journal import MOST_DAYS, MOST_ROWS_OF_POLL, JournalPolls, poll_ids, read_journal_polls
from advisor.journal import SqliteJournal
from advisor.predict.library import Library
from advisor.predict.start_time import COLUMNS, KIND, StartTimeForecaster, model_rows
from tests.builders import TAKEN_AT, make_job, make_snapshot
from tests.fit.start_time_journal import poll_row, poll_rows, write, write_snapshots
from tools.data.graham_polls import fit_start_time, read_polls

DAY_S = 86_400.0


@pytest.fixture(scope="module")
def polls(tmp_path_factory: pytest.TempPathFactory) -> Polls:
    return read_polls([write(tmp_path_factory.mktemp("polls") / "polls.csv", poll_rows())])[0]


@pytest.fixture(scope="module")
def fitted(polls: Polls) -> Fitted:
    return fit_polls(polls, seen_until=polls.seen_until, seed=0)


@pytest.fixture(scope="module")
def calibration(polls: Polls) -> HeldOutForecasts:
    return calibrate(polls, seen_until=polls.seen_until, seed=0)


def test_fit_of_the_same_files_is_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "polls.csv", poll_rows(days=10))

    first, second = (fit_start_time([path], seed=3) for _ in range(2))

    assert first.parameters == second.parameters
    assert (first.regressors[0].predict(first.probe) == second.regressors[0].predict(second.probe)).all()


def test_published_fit_is_served(tmp_path: Path, polls: Polls, fitted: Fitted) -> None:
    library = Library(tmp_path, tmp_path / "none")
    publish(fitted, tmp_path, "site-1", today="2026-11-21")
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


def test_calibrated_interval_covers_what_it_was_calibrated_on(calibration: HeldOutForecasts) -> None:
    low, high = factors(calibration)

    error = calibration.scaled_error
    assert np.mean((error >= low) & (error <= high)) == pytest.approx(0.8, abs=0.02)


def test_polls_weigh_the_same_in_the_calibration(calibration: HeldOutForecasts) -> None:
    first = calibration.poll_time == calibration.poll_time[0]

    heavier = replace(calibration, weight=np.where(first, 50.0, 1.0) * calibration.weight)

    assert factors(heavier) == pytest.approx(factors(calibration))


def test_calibration_looks_at_the_latter_half_of_the_polls(calibration: HeldOutForecasts) -> None:
    assert len(calibration.true) == 400
    assert np.unique(calibration.block).tolist() == [0, 1, 2, 3]


def test_what_was_measured_goes_into_the_card(fitted: Fitted) -> None:
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


def at(hours: float, *jobs: Job) -> Snapshot:
    """Return the queue some hours later; another job always waits."""
    return make_snapshot([*jobs, make_job(99)], taken_at=TAKEN_AT + hours * HOUR_S)


def pending(job_id: int = 1, **fields: object) -> Job:
    """Return a pending job."""
    return replace(make_job(job_id), **fields)  # type: ignore[arg-type]  # the test's own


def started(job_id: int, hours: float, **fields: object) -> Job:
    """Return a job that started at an hour."""
    return replace(
        make_job(job_id, running_on=["n01"]),
        start_time=TAKEN_AT + hours * HOUR_S,
        **fields,  # type: ignore[arg-type]  # the test's own
    )


def read(path: Path, snapshots: Sequence[Snapshot]) -> JournalPolls:
    """Write what a daemon saw, and read the polls of it."""
    write_snapshots(path / "journal.sqlite", snapshots)
    with SqliteJournal.read_only(path / "journal.sqlite") as journal:
        return read_journal_polls(journal)


def waits_h(found: JournalPolls, job_id: int = 1) -> list[float]:
    """Return the waits of the rows of a job, in hours."""
    polls = found.polls
    waits: list[float] = (polls.wait_s[polls.table.job_id == job_id] / HOUR_S).round(6).tolist()
    return waits


def test_job_seen_running_later_started_when_slurm_says(tmp_path: Path) -> None:
    found = read(tmp_path, [at(0.0, pending()), at(3.0, pending()), at(6.0, started(1, 4.5))])

    assert waits_h(found) == [4.5, 1.5]
    assert (found.cycles, found.left_out) == (3, {})


def test_job_that_started_and_ended_between_polls_has_the_start_that_the_daemon_saw(tmp_path: Path) -> None:
    found = read(tmp_path, [at(0.0, pending()), at(1.0, started(1, 0.75)), at(2.0), at(3.0)])

    assert found.cycles == 2
    assert waits_h(found) == [0.75]


def test_job_that_left_the_queue_unseen_is_left_out_and_counted(tmp_path: Path) -> None:
    found = read(tmp_path, [at(0.0, pending()), at(3.0, pending()), at(6.0)])

    assert waits_h(found) == []
    assert found.left_out == {"left the queue and were not seen to start": 2}


def test_job_that_still_waits_has_no_known_wait(tmp_path: Path) -> None:
    found = read(tmp_path, [at(0.0, pending()), at(3.0, pending())])

    assert np.isnan(waits_h(found)).all()
    assert found.pending == 4


def test_job_that_could_not_be_read_once_still_waits(tmp_path: Path) -> None:
    blind = replace(at(3.0), unread_jobs=(1,))

    found = read(tmp_path, [at(0.0, pending()), blind, at(6.0, started(1, 5.0))])

    assert waits_h(found) == [5.0]


def test_requeued_job_started_when_it_first_did(tmp_path: Path) -> None:
    again = pending(submit_time=TAKEN_AT + 2.0 * HOUR_S)

    found = read(tmp_path, [at(0.0, pending()), at(1.0, started(1, 0.5)), at(3.0, again), at(6.0, started(1, 5.0))])

    assert waits_h(found) == [0.5, 2.0]


def test_id_that_slurm_gave_to_a_job_of_another_user_is_no_start(tmp_path: Path) -> None:
    found = read(tmp_path, [at(0.0, pending(user="ann")), at(3.0, started(1, 2.0, user="bob"))])

    assert waits_h(found) == []


@pytest.mark.parametrize("hours", [-4.0, 9.0], ids=["before the poll", "in the future"])
def test_start_that_cannot_be_is_left_out(tmp_path: Path, hours: float) -> None:
    found = read(tmp_path, [at(0.0, pending()), at(3.0, started(1, hours))])

    assert waits_h(found) == []
    assert found.left_out == {"left the queue and were not seen to start": 1}


def test_row_of_an_array_waits_for_the_next_of_its_tasks(tmp_path: Path) -> None:
    waiting = pending(array=ArrayRecord(array_job_id=1, waiting="0-3"))
    fewer = pending(array=ArrayRecord(array_job_id=1, waiting="2-3"))
    tasks = [
        started(10 + number, hours, array=ArrayRecord(array_job_id=1, task_id=number))
        for number, hours in enumerate((4.0, 5.0))
    ]

    found = read(tmp_path, [at(0.0, waiting), at(3.0, waiting), at(6.0, fewer, *tasks), at(9.0, *tasks)])

    # The last row is of tasks that left the queue unseen.
    assert waits_h(found) == [4.0, 1.0]
    assert found.left_out == {"left the queue and were not seen to start": 1}


def test_jobs_that_are_never_forecast_are_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, [at(0.0, pending(2, dependency="afterok:1"), pending(3, reservation="course"))])

    assert found.polls.table.job_id.tolist() == [99]
    assert found.left_out == {"wait for another job or a reservation": 2}


def test_long_queue_gives_rows_at_even_distances(tmp_path: Path) -> None:
    queue = [pending(number, priority=9000 - number) for number in range(1, 3 * MOST_ROWS_OF_POLL + 1)]

    found = read(tmp_path, [at(0.0, *queue)])

    assert len(found.polls) == MOST_ROWS_OF_POLL
    assert found.polls.table.job_id[[0, 1, -2, -1]].tolist() == [1, 4, 1198, 99]
    assert found.left_out == {"not taken of long queues": 2 * MOST_ROWS_OF_POLL + 1}


def test_rows_are_those_that_are_served(tmp_path: Path) -> None:
    snapshot = at(0.0, pending(), started(5, -1.0, account="other"), pending(2, account="other", priority=2000))

    found = read(tmp_path, [snapshot])

    assert (model_rows(found.polls.table) == model_rows(backlog_table(snapshot))).all()


def test_equal_jobs_of_one_poll_are_one_burst(tmp_path: Path) -> None:
    queue = [pending(1), pending(2), pending(3, account="other"), pending(4, submit_time=TAKEN_AT - 5.0)]

    found = read(tmp_path, [at(0.0, *queue), at(3.0, *queue)])

    number = dict(
        zip(zip(found.polls.poll_time, found.polls.table.job_id, strict=True), found.polls.burst, strict=True)
    )
    assert number[TAKEN_AT, 1] == number[TAKEN_AT, 2]
    assert len({number[TAKEN_AT, job] for job in (1, 3, 4)} | {number[TAKEN_AT + 3 * HOUR_S, 1]}) == 4


def test_polls_are_three_hours_apart_and_of_the_last_weeks() -> None:
    hours = [0.0, 1.0, 3.0, 700.0, 702.0, 704.0]
    cycles = [(number, TAKEN_AT + hour * HOUR_S) for number, hour in enumerate(hours, start=1)]

    assert poll_ids(cycles) == (4, 6)
    assert poll_ids([*cycles[3:], (7, TAKEN_AT + 700 * HOUR_S + MOST_DAYS * DAY_S)]) == (4, 6, 7)
    assert poll_ids([]) == ()


def test_clock_that_was_ahead_costs_its_own_cycles() -> None:
    hours = [0.0, 3.0, 9000.0, 9003.0, 6.0, 9.0]

    assert poll_ids([(number, TAKEN_AT + hour * HOUR_S) for number, hour in enumerate(hours)]) == (0, 1, 4, 5)


def test_journal_without_waiting_gpu_jobs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        JournalError, match="no recorded cycle has a pending GPU job: the daemon records one cycle in 3"
    ):
        read(tmp_path, [make_snapshot([make_job(running_on=["n01"])])])


def test_suspended_and_ending_jobs_have_started(tmp_path: Path) -> None:
    ending = [started(1, 1.0, state=JobState.SUSPENDED), started(2, 2.0, state=JobState.COMPLETING)]

    found = read(tmp_path, [at(0.0, pending(1), pending(2)), at(3.0, *ending)])

    assert [waits_h(found, job_id) for job_id in (1, 2)] == [[1.0], [2.0]]
