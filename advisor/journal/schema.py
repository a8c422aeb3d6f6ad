"""Defines the tables of the journal by schema version, and migrates files of earlier versions."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from advisor.journal.seals import seal

SCHEMA_VERSION: Final = 6

# STRICT enforces the type of every column; SQLite supports it from 3.37 on.
_STRICT: Final = " STRICT" if sqlite3.sqlite_version_info >= (3, 37) else ""

_FIRST: Final = (
    f"CREATE TABLE site (one INTEGER PRIMARY KEY CHECK (one = 1), cluster TEXT, observed_until REAL){_STRICT}",
    "INSERT INTO site (one) VALUES (1)",
    f"""CREATE TABLE leases (
      id INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, lever TEXT NOT NULL, action TEXT NOT NULL, undo TEXT NOT NULL,
      applied_time REAL NOT NULL, due_time REAL, state TEXT NOT NULL, ending TEXT, ended_time REAL
    ){_STRICT}""",
    "CREATE UNIQUE INDEX open_leases ON leases (job_id, lever) WHERE ending IS NULL",
    "CREATE INDEX closed_leases ON leases (ended_time) WHERE ending IS NOT NULL",
    f"""CREATE TABLE waits (
      id INTEGER PRIMARY KEY, gpus INTEGER NOT NULL, tier TEXT NOT NULL, waited_s REAL NOT NULL, got INTEGER NOT NULL,
      ended_time REAL NOT NULL
    ){_STRICT}""",
    "CREATE INDEX waits_by_end ON waits (ended_time)",
)

# AUTOINCREMENT: the id of a cycle or an audit row is never reused, also after deletions.
_SECOND: Final = (
    "ALTER TABLE leases ADD COLUMN user TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE leases ADD COLUMN account TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE leases ADD COLUMN added_delay_s REAL NOT NULL DEFAULT 0.0",
    "ALTER TABLE leases ADD COLUMN by_person INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE leases ADD COLUMN overruled_time REAL",
    "CREATE INDEX closed_leases_by_job ON leases (job_id) WHERE ending IS NOT NULL",
    f"""CREATE TABLE cycles (
      id INTEGER PRIMARY KEY AUTOINCREMENT, taken_at REAL NOT NULL, version TEXT NOT NULL, jobs INTEGER NOT NULL,
      pending INTEGER NOT NULL, proposed INTEGER NOT NULL, recommended INTEGER NOT NULL, left_alone INTEGER NOT NULL,
      applied INTEGER NOT NULL DEFAULT 0, held_back INTEGER NOT NULL DEFAULT 0, digest TEXT NOT NULL,
      note TEXT NOT NULL DEFAULT ''
    ){_STRICT}""",
    "CREATE INDEX cycles_by_time ON cycles (taken_at)",
    f"""CREATE TABLE records (
      cycle_id INTEGER PRIMARY KEY, frame INTEGER NOT NULL, content BLOB NOT NULL
    ){_STRICT}""",
    "CREATE INDEX records_by_frame ON records (frame)",
    f"""CREATE TABLE changes (
      id INTEGER PRIMARY KEY AUTOINCREMENT, cycle_id INTEGER, time REAL NOT NULL, job_id INTEGER NOT NULL,
      lever TEXT NOT NULL, done TEXT NOT NULL, action TEXT NOT NULL, said TEXT NOT NULL
    ){_STRICT}""",
    "CREATE INDEX changes_by_job ON changes (job_id)",
    "CREATE INDEX changes_by_time ON changes (time)",
    f"""CREATE TABLE outcomes (
      job_id INTEGER NOT NULL, submit_time REAL NOT NULL, end_time REAL, outcome TEXT NOT NULL,
      PRIMARY KEY (job_id, submit_time)
    ){_STRICT}""",
    "CREATE INDEX outcomes_by_end ON outcomes (end_time)",
    f"""CREATE TABLE audit (
      id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, event TEXT NOT NULL, detail TEXT NOT NULL,
      previous TEXT NOT NULL, hash TEXT NOT NULL
    ){_STRICT}""",
    f"""CREATE TABLE audit_anchor (
      one INTEGER PRIMARY KEY CHECK (one = 1), id INTEGER NOT NULL, hash TEXT NOT NULL
    ){_STRICT}""",
    "INSERT INTO audit_anchor VALUES (1, 0, lower(hex(zeroblob(32))))",
    # Rows are added at the end of the chain, never changed, and deleted only up to the anchor, which moves forward
    # and only to the hash of an existing row: only pruning satisfies all of these.
    """CREATE TRIGGER audit_grows_at_its_end BEFORE INSERT ON audit
      WHEN NEW.previous IS NOT coalesce(
        (SELECT hash FROM audit ORDER BY id DESC LIMIT 1), (SELECT hash FROM audit_anchor)
      ) BEGIN SELECT RAISE(ABORT, 'the audit only grows at its end'); END""",
    """CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
      BEGIN SELECT RAISE(ABORT, 'the audit is never changed'); END""",
    """CREATE TRIGGER audit_is_only_pruned BEFORE DELETE ON audit WHEN OLD.id > (SELECT id FROM audit_anchor)
      BEGIN SELECT RAISE(ABORT, 'the audit is only pruned up to its anchor'); END""",
    """CREATE TRIGGER anchor_moves_forward BEFORE UPDATE ON audit_anchor
      WHEN NEW.id <= OLD.id OR NOT EXISTS (SELECT 1 FROM audit WHERE id = NEW.id AND hash = NEW.hash)
      BEGIN SELECT RAISE(ABORT, 'the anchor of the audit moves forward along it'); END""",
    """CREATE TRIGGER anchor_stays BEFORE DELETE ON audit_anchor
      BEGIN SELECT RAISE(ABORT, 'the anchor of the audit stays'); END""",
)

# `leases` is the seal of that table once the row is written, empty in rows of earlier versions. The daemon sets `nonce`
# in every round, by which it recognises the file.
_THIRD: Final = (
    "ALTER TABLE audit ADD COLUMN leases TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE site ADD COLUMN nonce TEXT NOT NULL DEFAULT ''",
    f"CREATE TABLE seals (name TEXT PRIMARY KEY, digest TEXT NOT NULL){_STRICT}",
)

_FOURTH: Final = (
    "ALTER TABLE leases ADD COLUMN priority INTEGER",
    "ALTER TABLE leases ADD COLUMN serves TEXT NOT NULL DEFAULT '[]'",
    "ALTER TABLE leases ADD COLUMN planned_start REAL",
    "ALTER TABLE leases ADD COLUMN would_start_time REAL",
    "ALTER TABLE leases ADD COLUMN start_time REAL",
    # When their jobs would have started was not observed: at once, so that no delay is booked too low.
    "UPDATE leases SET would_start_time = applied_time, start_time = ended_time",
)

_FIFTH: Final = (
    f"""CREATE TABLE standings (
      anchor_time REAL PRIMARY KEY, until REAL NOT NULL, stretch TEXT NOT NULL
    ){_STRICT}""",
)

# `request` is NULL in leases of earlier versions.
_SIXTH: Final = (
    "ALTER TABLE leases ADD COLUMN request TEXT",
    "ALTER TABLE leases ADD COLUMN lost TEXT NOT NULL DEFAULT ''",
)

# The statements that migrate a file to a version from the one before.
_MIGRATIONS: Mapping[int, Sequence[str]] = {1: _FIRST, 2: _SECOND, 3: _THIRD, 4: _FOURTH, 5: _FIFTH, 6: _SIXTH}


def version_of(database: sqlite3.Connection) -> int:
    """Return the schema version of a file; 0 if it has no tables of ours."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def migrate(database: sqlite3.Connection) -> None:
    """Migrate the tables to the current version, in the caller's transaction."""
    earlier = version_of(database)
    for version in range(earlier + 1, SCHEMA_VERSION + 1):
        for statement in _MIGRATIONS[version]:
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {version}")
    if earlier < SCHEMA_VERSION:
        seal(database)
