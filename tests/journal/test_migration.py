"""A journal of the previous schema is brought up to date, and read as it is by who only looks."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from advisor.domain.lease import Ending, LeaseState
from advisor.errors import JournalError
from advisor.journal import SCHEMA_VERSION, SqliteJournal, opened
from tests.journal.contract import ACTIONS, NOW, wait

# Written by the code of each schema.
SCRIPTS = Path(__file__).parents[1] / "recorded" / "journal"
# Names of nodes came later.
CLOSED, *OPEN = ACTIONS[:-1]


def written(tmp_path: Path, schema: int) -> Path:
    """Return a journal of an earlier schema."""
    path = tmp_path / "journal.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript((SCRIPTS / f"schema-{schema}.sql").read_text())
    path.chmod(0o644)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path, 1)


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
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


def test_previous_schema_is_brought_up_to_date_with_all_that_stood_there(path: Path) -> None:
    with opened(path) as journal:
        check_content(journal)
        assert journal.verify().rows == 0

    assert version(path) == SCHEMA_VERSION


def test_audit_of_schema_2_still_verifies_and_is_sealed_from_then_on(tmp_path: Path) -> None:
    path = written(tmp_path, 2)
    looked_at = SqliteJournal.read_only(path)
    read_only, objections = looked_at.verify(), [lease.added_delay_s for lease in looked_at.leases()]
    looked_at.close_file()

    with opened(path) as journal:
        migrated = journal.verify()
        journal.note(NOW, "started", {})
        journal._database.execute("DROP TRIGGER leases_sealed_at_update")
        journal._database.execute("UPDATE leases SET added_delay_s = 0.0")
        meddled = journal.verify()

    assert (read_only.rows, read_only.is_intact) == (migrated.rows, migrated.is_intact) == (15, True)
    assert set(objections) == {60.0}
    assert (meddled.rows, meddled.broken, meddled.tables) == (16, None, ("leases",))
    assert version(path) == SCHEMA_VERSION


def test_copy_of_the_file_as_it_was_stays_beside_it(path: Path) -> None:
    with opened(path):
        pass

    copy = path.with_name("journal.sqlite.schema-1")
    assert version(copy) == 1
    assert copy.stat().st_mode & 0o777 == path.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as database:
        assert database.execute("SELECT count(*) FROM leases").fetchone() == (6,)


def test_copy_that_a_failed_attempt_left_is_replaced(path: Path) -> None:
    copy = path.with_name("journal.sqlite.schema-1")
    copy.write_text("half a copy")

    with opened(path):
        pass

    assert version(copy) == 1


def test_without_its_copy_a_file_is_not_changed(path: Path) -> None:
    path.with_name("journal.sqlite.schema-1").mkdir()

    with pytest.raises(JournalError, match=r"schema-1: cannot be written, and without it .* is not changed"):
        SqliteJournal(path)

    assert version(path) == 1


def test_migration_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE records (in_the TEXT, way TEXT)")

    with pytest.raises(JournalError, match="table records already exists"):
        SqliteJournal(path)

    assert version(path) == 1
    with closing(sqlite3.connect(path)) as database:
        assert "user" not in [row[1] for row in database.execute("PRAGMA table_info(leases)")]


def test_who_only_looks_reads_the_previous_schema_and_leaves_it(path: Path) -> None:
    before = path.read_bytes()

    journal = SqliteJournal.read_only(path)

    check_content(journal)
    journal.close_file()
    assert path.read_bytes() == before
    assert not path.with_name("journal.sqlite.schema-1").exists()
