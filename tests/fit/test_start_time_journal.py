"""Polls from a journal: which cycles count, when their jobs started, and which rows are left out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.domain.job import ArrayRecord, Job, JobState
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import DAY_S, HOUR_S
from advisor.errors import JournalError
from advisor.features.backlog import backlog_table
from advisor.fit.start_time_journal import MOST_DAYS, MOST_ROWS_OF_POLL, JournalPolls, poll_ids, read_journal_polls
from advisor.journal import SqliteJournal
from advisor.predict.start_time import model_rows
from tests.builders import TAKEN_AT, make_job, make_snapshot
from tests.fit.start_time_journal import write_snapshots


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
