"""The audit: what it tells, and that it shows whatever was done to it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.clock import ManualClock
from advisor.domain.lease import Ending, LeaseState, intended
from advisor.domain.probation import Trust
from advisor.errors import JournalError
from advisor.journal import SqliteJournal, store
from advisor.journal.base import BREAKERS, DRIFTED, PROVEN
from advisor.settings import JournalSettings
from tests.journal.contract import NICE, NOW

DAY_S = 86_400.0


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    journal = SqliteJournal(
        tmp_path / "journal.sqlite", clock=ManualClock(NOW), retention=JournalSettings(keep_days=1.0, records_mib=1.0)
    )
    yield journal
    journal.close_file()


def filled(journal: SqliteJournal, rows: int = 5) -> None:
    """Write some rows, an hour apart."""
    for number in range(rows):
        journal.note(NOW + number * 3600.0, "paused", {"by": "al\nice \x1b[31m", "number": number})


def meddled(journal: SqliteJournal, trigger: str, statement: str) -> None:
    """Change the audit as only somebody who first takes a guard away can."""
    journal._database.execute(f"DROP TRIGGER {trigger}")
    journal._database.execute(statement)


def test_every_change_of_a_lease_and_every_note_is_a_row(journal: SqliteJournal) -> None:
    lease = replace(intended(NICE, NOW, after_s=60.0), user="alice", account="lab")

    journal.claim("here")
    journal.keep(lease)
    journal.keep(replace(lease, state=LeaseState.OUT))
    journal.keep(replace(lease, state=LeaseState.RETURNING, by_person=True))
    journal.close(lease, Ending.REVERTED, NOW + 9.0)
    journal.note(NOW + 10.0, "breaker", {"name": "load", "threads": 200})

    rows = journal.audit()
    assert [row.event for row in rows] == ["breaker", "reverted", "returning", "out", "intended", "claimed"]
    assert rows[0].detail == {"name": "load", "threads": 200} and rows[0].time == NOW + 10.0
    assert rows[2].detail == {
        "job_id": 5,
        "lever": "nice",
        "user": "alice",
        "account": "lab",
        "before": "0",
        "after": "50",
        "added_delay_s": 0.0,
        "due_time": NOW + 60.0,
        "by_person": 1,
    }
    assert [row.number for row in journal.audit(since=NOW, most=1)] == [6]
    assert (journal.verify().rows, journal.verify().broken) == (6, None)


def test_starts_of_changed_jobs_are_rows(journal: SqliteJournal) -> None:
    journal.would_start({6: NOW + 1.0, 5: NOW + 2.0})
    journal.started({5: NOW + 3.0})

    assert [(row.event, row.detail) for row in journal.audit_after(0)] == [
        ("would_start", {"job_id": 5, "would_start_time": NOW + 2.0}),
        ("would_start", {"job_id": 6, "would_start_time": NOW + 1.0}),
        ("started", {"job_id": 5, "start_time": NOW + 3.0}),
    ]


def test_newest_row_has_the_highest_number(journal: SqliteJournal) -> None:
    empty = journal.newest_row()
    filled(journal, 3)

    assert (empty, journal.newest_row()) == (0, 3)
    assert [row.number for row in journal.audit_after(2)] == [3]


def test_model_that_has_proven_itself_is_that_of_the_newest_row(journal: SqliteJournal) -> None:
    none_yet = journal.trust()
    journal.note(NOW, PROVEN, {"model": "run_time 1"})
    first = journal.trust()
    journal.note(NOW, PROVEN, {"model": "run_time 2"})

    assert none_yet == Trust() and first.proven == {"run_time 1"}
    assert journal.trust().proven == journal.trust().proven == {"run_time 2"}


def test_of_a_proof_and_a_drift_of_one_model_the_later_one_counts(journal: SqliteJournal) -> None:
    journal.note(NOW, PROVEN, {"model": "run_time 1", "since": NOW})
    proven = journal.trust()
    journal.note(NOW + 9.0, DRIFTED, {"model": "run_time 1", "since": NOW + 9.0})
    drifted = journal.trust()
    # As a person wrote it while the clock was set back.
    journal.note(NOW - 9.0, PROVEN, {"model": "run_time 1", "since": NOW + 9.0})
    again = journal.trust()
    journal.note(NOW + 20.0, PROVEN, {"model": "run_time 2", "since": NOW + 20.0})
    journal.note(NOW + 30.0, DRIFTED, {"model": "run_time 3", "since": NOW + 30.0})

    def since(number: int, after_s: float) -> dict[str, float]:
        return {f"run_time {number}": NOW + after_s}

    assert proven == Trust(proven=frozenset({"run_time 1"}), since_by_model=since(1, 0.0))
    assert drifted == Trust(drifted=frozenset({"run_time 1"}), since_by_model=since(1, 9.0))
    assert again == Trust(proven=frozenset({"run_time 1"}), since_by_model=since(1, 9.0))
    assert journal.trust() == Trust(
        proven=frozenset({"run_time 2"}),
        drifted=frozenset({"run_time 3"}),
        since_by_model={**since(2, 20.0), **since(3, 30.0)},
    )


def test_proof_among_other_new_rows_is_seen(journal: SqliteJournal) -> None:
    journal.note(NOW, PROVEN, {"model": "run_time 1"})
    before = journal.trust()
    journal.note(NOW + 1.0, PROVEN, {"model": "run_time 2"})
    journal.note(NOW + 2.0, "paused", {})

    assert before.proven == {"run_time 1"}
    assert journal.trust().proven == {"run_time 2"}


def test_proof_that_another_program_writes_is_seen(journal: SqliteJournal) -> None:
    journal.note(NOW, DRIFTED, {"model": "run_time 1", "since": NOW})
    before = journal.trust()
    with SqliteJournal(journal.path) as other:
        other.note(NOW + 1.0, PROVEN, {"model": "run_time 1", "since": NOW + 1.0})

    assert before.drifted == journal.trust().proven == {"run_time 1"}


def test_change_that_is_not_written_is_not_in_the_audit(journal: SqliteJournal) -> None:
    journal._database.execute("CREATE TRIGGER full BEFORE INSERT ON leases BEGIN SELECT RAISE(ABORT, 'no'); END")

    with pytest.raises(JournalError):
        journal.keep(intended(NICE, NOW))

    assert journal.audit() == ()


@pytest.mark.parametrize(
    ("statement", "against"),
    [
        ("UPDATE audit SET event = 'resumed' WHERE id = 2", "never changed"),
        ("DELETE FROM audit WHERE id = 2", "only pruned"),
        ("DELETE FROM audit", "only pruned"),
        (
            "INSERT INTO audit SELECT 9, time, event, detail, previous, hash, leases FROM audit WHERE id = 2",
            "grows at its end",
        ),
        ("UPDATE audit_anchor SET id = 3", "moves forward along it"),
        ("UPDATE audit_anchor SET id = 0", "moves forward along it"),
        ("DELETE FROM audit_anchor", "stays"),
    ],
)
def test_file_itself_takes_no_change_of_the_audit(journal: SqliteJournal, statement: str, against: str) -> None:
    filled(journal)

    with pytest.raises(Exception, match=against):
        journal._database.execute(statement)

    assert (journal.verify().rows, journal.verify().broken) == (5, None)


@pytest.mark.parametrize(
    ("trigger", "statement", "broken", "fault"),
    [
        (
            "audit_is_never_changed",
            "UPDATE audit SET event = 'resumed' WHERE id = 2",
            2,
            "changed after it was written",
        ),
        ("audit_is_never_changed", "UPDATE audit SET time = time + 1 WHERE id = 4", 4, "changed after it was written"),
        ("audit_is_never_changed", "UPDATE audit SET detail = '{}' WHERE id = 5", 5, "changed after it was written"),
        ("audit_is_never_changed", "UPDATE audit SET hash = lower(hex(zeroblob(32))) WHERE id = 3", 3, "changed after"),
        ("audit_is_never_changed", "UPDATE audit SET previous = 'x' WHERE id = 3", 3, "does not follow"),
        ("audit_is_only_pruned", "DELETE FROM audit WHERE id = 2", 3, "row 2 is missing"),
        ("audit_is_only_pruned", "DELETE FROM audit WHERE id = 1", 2, "row 1 is missing"),
    ],
)
def test_first_row_that_does_not_hold_is_named(
    journal: SqliteJournal, trigger: str, statement: str, broken: int, fault: str
) -> None:
    filled(journal)
    meddled(journal, trigger, statement)

    found = journal.verify()

    assert (found.broken, found.first) == (broken, 1)
    assert fault in found.fault


def test_old_rows_are_pruned_and_the_chain_holds(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LEAST_KEPT", 2)
    filled(journal, 5)

    journal.prune(NOW + DAY_S + 2.5 * 3600.0)
    journal.note(NOW + 2 * DAY_S, "stopped", {})

    found = journal.verify()
    assert (found.first, found.rows, found.broken) == (4, 4, None)
    assert [(row.number, row.event) for row in journal.audit()][:2] == [(7, "stopped"), (6, "pruned")]
    assert journal.audit()[1].detail == {"rows": 3}


def test_newest_rows_stay_whatever_the_clock_says(journal: SqliteJournal) -> None:
    filled(journal, 5)

    journal.prune(NOW + 10_000 * DAY_S)

    assert journal.verify().rows == 5


def test_what_holds_until_a_newer_event_outlives_the_retention(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LEAST_KEPT", 0)
    for number in range(2):
        journal.note(NOW, BREAKERS, {"state": f"{number}"})
        journal.note(NOW, PROVEN, {"model": f"run_time {number}"})
        journal.note(NOW, DRIFTED, {"model": f"run_time {number}", "since": NOW + number})
    filled(journal, 3)

    journal.prune(NOW + 9 * DAY_S)

    assert [(row.event, dict(row.detail)) for row in journal.audit_after(0)] == [
        ("pruned", {"rows": 9}),
        (BREAKERS, {"state": "1"}),
        (PROVEN, {"model": "run_time 1"}),
        (DRIFTED, {"model": "run_time 1", "since": NOW + 1}),
    ]
    assert journal.verify().is_intact


def test_chain_goes_on_where_all_was_pruned(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LEAST_KEPT", 0)
    filled(journal, 3)

    journal.prune(NOW + 9 * DAY_S)
    journal.prune(NOW + 99 * DAY_S)
    journal.note(NOW + 99 * DAY_S, "started", {})

    assert [row.event for row in journal.audit()] == ["started", "pruned"]
    assert journal.verify().broken is None
