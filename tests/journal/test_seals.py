"""The seals: whatever another program changes in a table that decides, the journal shows it."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.apply.step import Step
from advisor.clock import ManualClock
from advisor.cycle import Cycle
from advisor.domain.lease import Ending, LeaseState, intended
from advisor.domain.memory import Memory
from advisor.domain.outcome import JobOutcome
from advisor.domain.units import DAY_S
from advisor.errors import JournalError
from advisor.journal import SCHEMA_VERSION, SqliteJournal, opened
from advisor.journal.rows import LEASE_COLUMNS
from advisor.journal.schema import migrate
from advisor.journal.seals import SEALED, add_functions
from tests.builders import make_job, make_stretch
from tests.fake_cluster import fragmented
from tests.journal.contract import ACTIONS, NICE, NOW, RANGE, SWITCHES, wait

# The columns of a lease after the third, from the lease of any job.
COPIED = f"{LEASE_COLUMNS.split(', ', 3)[3]} FROM leases LIMIT 1"
MEDDLING = {
    "an open lease is removed": ("leases", "DELETE FROM leases WHERE ending IS NULL"),
    "the user's value is replaced": ("leases", "UPDATE leases SET undo = replace(undo, '4', '2') WHERE job_id = 5"),
    "a lease is never due": ("leases", "UPDATE leases SET due_time = NULL WHERE job_id = 5"),
    "an objection is removed": ("leases", "UPDATE leases SET by_person = 0, ending = 'taken_back' WHERE by_person = 1"),
    "another objection is removed": ("leases", "UPDATE leases SET overruled_time = NULL"),
    "the booked delay is removed": ("leases", "UPDATE leases SET added_delay_s = 0.0"),
    "the booked delay is another user's": ("leases", "UPDATE leases SET user = 'bob'"),
    "a lease is added": ("leases", f"INSERT INTO leases ({LEASE_COLUMNS}) SELECT 99, 'x', action, {COPIED}"),
    "two leases swap their times": ("leases", "UPDATE leases SET applied_time = applied_time + 2.0 - 4.0 * (id % 2)"),
    "a wait is longer": ("waits", "UPDATE waits SET waited_s = waited_s + 1.0"),
    "the waits are removed": ("waits", "DELETE FROM waits"),
    "an outcome is another": ("outcomes", "UPDATE outcomes SET outcome = replace(outcome, '7', '8')"),
    "what users gained is another": ("standings", "UPDATE standings SET stretch = replace(stretch, '60', '10')"),
    "the file is another cluster's": ("site", "UPDATE site SET cluster = 'there'"),
    "the starts are observed again": ("site", "UPDATE site SET observed_until = 0.0"),
    "a seal is removed": ("waits", "DELETE FROM seals WHERE name = 'waits'"),
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
def journal(path: Path) -> Iterator[SqliteJournal]:
    with SqliteJournal(path, clock=ManualClock(NOW)) as journal:
        journal.claim("here")
        lease = replace(intended(RANGE, NOW, after_s=600.0), user="ada", added_delay_s=60.0)
        reverted = replace(intended(NICE, NOW), state=LeaseState.OUT, by_person=True)
        overruled = replace(intended(SWITCHES, NOW), state=LeaseState.HANDS_OFF, overruled_time=NOW + 1.0)
        for kept in (lease, replace(lease, state=LeaseState.OUT), reverted, overruled):
            journal.keep(kept)
        journal.close(reverted, Ending.REVERTED, NOW + 2.0)
        journal.add_waits([wait(NOW), wait(NOW + 1.0)], NOW + 1.0)
        outcome = JobOutcome(job_id=7, submit_time=NOW)
        journal.keep_outcomes([outcome])
        journal.keep_outcomes([replace(outcome, end_time=NOW + 9.0)])
        journal.keep_stretch(make_stretch(anchor_time=NOW))
        yield journal


def test_journal_that_only_sadvise_wrote_is_intact(journal: SqliteJournal) -> None:
    journal.prune(NOW + 3600.0)
    journal.note(NOW, "paused", {})

    assert journal.verify().tables == () and journal.verify().is_intact


def test_seal_is_the_sum_of_the_rows_and_as_long_as_one(journal: SqliteJournal) -> None:
    journal.add_waits([wait(NOW + number) for number in range(2, 22)], NOW + 22.0)

    rows = journal._database.execute("SELECT * FROM waits").fetchall()
    texts = [json.dumps(row, separators=(",", ":")).encode() for row in rows]
    (seal,) = journal._database.execute("SELECT digest FROM seals WHERE name = 'waits'").fetchone()
    assert int(seal, 16) == sum(int(hashlib.sha256(text).hexdigest(), 16) for text in texts) % 2**256
    assert len(rows) == 22 and len(seal) == 64


@pytest.mark.parametrize(("table", "statement"), [MEDDLING[name] for name in MEDDLING], ids=list(MEDDLING))
def test_change_by_another_program_names_the_table(journal: SqliteJournal, table: str, statement: str) -> None:
    for sealed in SEALED:
        for event in ("insert", "update", "delete"):
            journal._database.execute(f"DROP TRIGGER {sealed}_sealed_at_{event}")

    journal._database.execute(statement)

    result = journal.verify()
    assert result.tables == (table,) and not result.is_intact and result.broken is None


def test_file_that_is_up_to_date_is_not_sealed_again(journal: SqliteJournal) -> None:
    journal._database.execute("DROP TRIGGER waits_sealed_at_delete")
    journal._database.execute("DELETE FROM waits")

    # As where two programs found the previous schema, and the other one was first.
    migrate(journal._database)

    assert journal.verify().tables == ("waits",)


@pytest.mark.parametrize("table", SEALED)
def test_file_itself_takes_no_change_of_another_program(journal: SqliteJournal, path: Path, table: str) -> None:
    column = {"leases": "user", "waits": "gpus", "outcomes": "outcome", "standings": "stretch", "site": "cluster"}[
        table
    ]
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        pytest.raises(sqlite3.OperationalError, match="no such function: sealed_with"),
    ):
        other.execute(f"UPDATE {table} SET {column} = {column}")  # noqa: S608  (ours)

    assert journal.verify().is_intact


def test_program_that_seals_what_it_changed_is_shown_by_the_audit(journal: SqliteJournal, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        add_functions(other)
        other.execute("UPDATE leases SET added_delay_s = 0.0 WHERE user = 'ada'")

    result = journal.verify()

    assert result.tables == ("leases",) and result.broken is None


def test_seal_in_a_row_of_the_audit_is_part_of_its_chain(journal: SqliteJournal) -> None:
    journal._database.execute("DROP TRIGGER audit_is_never_changed")
    journal._database.execute("UPDATE audit SET leases = '' WHERE id = 3")

    assert journal.verify().broken == 3


def stepped_after(path: Path, *emptied: str) -> tuple[Step, Memory]:
    """Apply a cycle on a new cluster, empty tables of its journal, and return the next cycle, in which it is due."""
    cluster = fragmented(make_job(11, gpus=2, held=True, priority=0))
    with SqliteJournal(path, clock=ManualClock(NOW)) as journal:
        first = Applier(source=cluster, actuator=cluster, cycle=Cycle(), journal=journal)
        assert [receipt.action.job_id for receipt in first.step().applied] == [9]
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        add_functions(other)
        for table in emptied:
            assert other.execute(f"DELETE FROM {table}").rowcount > 0  # noqa: S608  (ours)
    cluster.now += DAY_S
    with SqliteJournal(path, clock=ManualClock(NOW)) as journal:
        memory = Cycle().memory(journal, cluster.snapshot())
        return Applier(source=cluster, actuator=cluster, cycle=Cycle(), journal=journal).step(), memory


def test_tables_that_are_neither_sealed_nor_in_the_chain_decide_nothing(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "tables.sqlite") as journal:
        tables = {
            str(name) for (name,) in journal._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
    unsealed = sorted(tables - {*SEALED, "seals", "audit", "audit_anchor", "sqlite_sequence"})

    untouched = stepped_after(tmp_path / "untouched.sqlite")
    emptied = stepped_after(tmp_path / "emptied.sqlite", *unsealed)
    without_leases = stepped_after(tmp_path / "without_leases.sqlite", "leases")

    assert unsealed == ["changes", "cycles", "records"]
    assert emptied == untouched
    assert [receipt.action.job_id for receipt in untouched[0].reconciled.taken_back] == [9]
    assert without_leases != untouched


# Written by the code of each schema.
SCRIPTS = Path(__file__).parents[1] / "recorded" / "journal"
# Names of nodes came later.
CLOSED, *OPEN = ACTIONS[:-1]


def written(tmp_path: Path, schema: int) -> Path:
    """Return a journal of an earlier schema."""
    old_path = tmp_path / "journal.sqlite"
    with closing(sqlite3.connect(old_path, isolation_level=None)) as database:
        database.executescript((SCRIPTS / f"schema-{schema}.sql").read_text())
    old_path.chmod(0o644)
    return old_path


@pytest.fixture
def old_path(tmp_path: Path) -> Path:
    return written(tmp_path, 1)


def version(old_path: Path) -> int:
    with closing(sqlite3.connect(old_path)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


def check_content(journal: SqliteJournal) -> None:
    """Check that all that stood in the recorded file is there."""
    assert journal.cluster() == "here"
    # One more is in the file, of a stop of a running job, which no version reverts.
    assert sorted(str(lease.action) for lease in journal.leases()) == sorted(map(str, OPEN))
    assert {(lease.state, lease.user, lease.added_delay_s) for lease in journal.leases()} == {(LeaseState.OUT, "", 0.0)}
    assert {(lease.request, lease.lost) for lease in journal.leases()} == {(None, "")}
    assert [(lease.action, lease.ending) for lease in journal.closed([5])] == [(CLOSED, Ending.TAKEN_BACK)]
    assert journal.waits(0.0) == (wait(NOW),)
    assert journal.observed_until() == NOW + 1.0


def test_previous_schema_is_brought_up_to_date_with_all_that_stood_there(old_path: Path) -> None:
    with opened(old_path) as journal:
        check_content(journal)
        assert journal.verify().rows == 0

    assert version(old_path) == SCHEMA_VERSION


def test_audit_of_schema_2_still_verifies_and_is_sealed_from_then_on(tmp_path: Path) -> None:
    old_path = written(tmp_path, 2)
    looked_at = SqliteJournal.read_only(old_path)
    read_only, objections = looked_at.verify(), [lease.added_delay_s for lease in looked_at.leases()]
    looked_at.close_file()

    with opened(old_path) as journal:
        migrated = journal.verify()
        journal.note(NOW, "started", {})
        journal._database.execute("DROP TRIGGER leases_sealed_at_update")
        journal._database.execute("UPDATE leases SET added_delay_s = 0.0")
        meddled = journal.verify()

    assert (read_only.rows, read_only.is_intact) == (migrated.rows, migrated.is_intact) == (15, True)
    assert set(objections) == {60.0}
    assert (meddled.rows, meddled.broken, meddled.tables) == (16, None, ("leases",))
    assert version(old_path) == SCHEMA_VERSION


def test_copy_of_the_file_as_it_was_stays_beside_it(old_path: Path) -> None:
    with opened(old_path):
        pass

    copy = old_path.with_name("journal.sqlite.schema-1")
    assert version(copy) == 1
    assert copy.stat().st_mode & 0o777 == old_path.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as database:
        assert database.execute("SELECT count(*) FROM leases").fetchone() == (6,)


def test_copy_that_a_failed_attempt_left_is_replaced(old_path: Path) -> None:
    copy = old_path.with_name("journal.sqlite.schema-1")
    copy.write_text("half a copy")

    with opened(old_path):
        pass

    assert version(copy) == 1


def test_without_its_copy_a_file_is_not_changed(old_path: Path) -> None:
    old_path.with_name("journal.sqlite.schema-1").mkdir()

    with pytest.raises(JournalError, match=r"schema-1: cannot be written, and without it .* is not changed"):
        SqliteJournal(old_path)

    assert version(old_path) == 1


def test_migration_that_fails_leaves_the_file_as_it_was(old_path: Path) -> None:
    with closing(sqlite3.connect(old_path, isolation_level=None)) as database:
        database.execute("CREATE TABLE records (in_the TEXT, way TEXT)")

    with pytest.raises(JournalError, match="table records already exists"):
        SqliteJournal(old_path)

    assert version(old_path) == 1
    with closing(sqlite3.connect(old_path)) as database:
        assert "user" not in [row[1] for row in database.execute("PRAGMA table_info(leases)")]


def test_who_only_looks_reads_the_previous_schema_and_leaves_it(old_path: Path) -> None:
    before = old_path.read_bytes()

    journal = SqliteJournal.read_only(old_path)

    check_content(journal)
    journal.close_file()
    assert old_path.read_bytes() == before
    assert not old_path.with_name("journal.sqlite.schema-1").exists()
