"""Looks at pending gangs: every ten minutes, by what the journal holds, and once an hour a row of the audit."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.daemon.gang_watch import GangWatch
from advisor.domain.gang import GpuScope
from advisor.domain.outcome import JobOutcome
from advisor.domain.snapshot import Snapshot
from advisor.domain.waiting_gangs import WeekOfGangs
from advisor.journal import SqliteJournal, opened
from advisor.journal.base import GANGS
from advisor.site.digests import week_of_gangs
from tests.builders import DAY_S, TAKEN_AT, make_gang, make_job, make_snapshot

GANG = make_job(1, gang=make_gang(8, scope=GpuScope.NODE), user="ada", submitted_ago_s=4 * DAY_S, reason="Resources")
BEGUN = TAKEN_AT - 3 * DAY_S
RUN = JobOutcome(
    job_id=9,
    submit_time=BEGUN,
    user="ben",
    gpus=8,
    eligible_time=BEGUN,
    start_time=BEGUN,
    last_start_time=BEGUN,
    end_time=BEGUN + DAY_S,
    nodes=("n01",),
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    with opened(tmp_path / "journal.sqlite") as held:
        held.claim("test")
        held.keep_outcomes([RUN, replace(RUN, job_id=10, end_time=TAKEN_AT - 5 * DAY_S, last_start_time=0.0)])
        yield held


def at(minutes: float) -> Snapshot:
    """Return a queue in which a gang would fit on one node if the jobs of two stood on one, some time later."""
    held = [(2, 5, "n01"), (3, 3, "n02"), (4, 8, "n03"), (5, 8, "n04")]
    running = [make_job(job_id, gpus=gpus, running_on=[node], user="old", submitted_ago_s=9 * DAY_S)
               for job_id, gpus, node in held]  # fmt: skip
    return replace(make_snapshot([GANG, *running]), taken_at=TAKEN_AT + 60 * minutes)


def test_a_look_is_taken_every_ten_minutes_and_written_once_an_hour(journal: SqliteJournal) -> None:
    watch = GangWatch()
    looks = []
    for minutes in (0, 1, 9, 10, 20, 30, 40, 50, 60, 160):
        watch.observe(journal, at(minutes), 2 * DAY_S)
        looks.append(watch.look)

    rows = [row for row in reversed(journal.audit()) if row.event == GANGS]
    first = looks[0]

    assert first is not None and looks[1] is first and looks[2] is first and looks[3] is not first
    assert [(gang.job_id, gang.passed_by, gang.passed_gpu_s) for gang in first.starved] == [(1, 1, 8 * DAY_S)]
    assert first.scattered == (("n02", 5), ("n01", 3))
    # Of the hundred minutes before the last look, half an hour counts.
    assert [json.loads(str(row.detail["scattered"])) for row in rows] == [
        [], [["n02", 5.0], ["n01", 3.0]], [["n02", 2.5], ["n01", 1.5]],
    ]  # fmt: skip
    assert week_of_gangs(rows) == WeekOfGangs(starved=((1, "ada"),), scattered=(("n02", 7.5), ("n01", 4.5)))


def test_nothing_is_written_where_no_gang_waits_and_a_clock_that_is_set_back_ends_no_look(
    journal: SqliteJournal,
) -> None:
    watch, later = GangWatch(), at(600)
    watch.observe(journal, replace(later, jobs=()), 2 * DAY_S)
    watch.observe(journal, replace(at(0), jobs=()), 2 * DAY_S)

    assert watch.look is not None and watch.look.looked_time == TAKEN_AT
    assert (watch.look.starved, watch.look.scattered) == ((), ())
    assert [row for row in journal.audit() if row.event == GANGS] == []
