"""The file of the journal: opening it to write or only to look, whole transactions, and faults said in one line."""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from advisor.errors import JournalError
from advisor.journal.schema import SCHEMA_VERSION, migrate, version_of

NO_FOLDER: Final = "its folder is not there: make it, or name another file with --journal"
DAMAGED: Final = "is damaged: move it away, and look at pending jobs by hand (`squeue -O JobID,Nice,MinNodes,MaxNodes`)"
_FOREIGN: Final = "is no journal of sadvise: name another file with --journal"

# What SQLite's own words leave out: what it means here, and what to do.
_FAULTS: Mapping[str, str] = {
    "SQLITE_CORRUPT": DAMAGED,
    "SQLITE_NOTADB": _FOREIGN,
    "SQLITE_READONLY": "cannot be written: run as the user who owns it, or name another with --journal",
    "SQLITE_CANTOPEN": "cannot be opened: check that this user may write it and its folder",
    "SQLITE_FULL": "cannot grow: its disk is full, and without it nothing is applied",
    "SQLITE_BUSY": "is held by another program: try again when that is done",
    "SQLITE_IOERR": "cannot be read or written: check its disk, which may be full",
}
_ABOVE_BYTES: Final = 16 << 20


def connected(path: Path, *, thorough: bool = False) -> sqlite3.Connection:
    """Open a journal to write, or make a new one; raises `JournalError` for one that is damaged, foreign or newer.

    With `thorough` every page of it is looked at, which takes seconds where there is much.
    """
    if not path.parent.is_dir():
        raise JournalError(f"{path}: {NO_FOLDER}")
    with said_plainly(path):
        # SQLite gives the files that it puts beside this one the same permissions. What cannot be made it complains of.
        with suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        # One thread of the daemon opens it and another works with it, one at a time.
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        with _closed_on_fault(database):
            _prepare(path, database, thorough=thorough)
        return database


def connected_to_look(path: Path) -> sqlite3.Connection:
    """Open a journal only to read it, beside whoever writes it and as a user who may not.

    One of an earlier version is brought up to date in a copy in memory. Raises `JournalError`.
    """
    with said_plainly(path):
        try:
            is_there = path.is_file()
        except OSError as err:
            raise JournalError(f"{path}: cannot be opened: {err.strerror}") from err
        if not is_there:
            raise JournalError(f"{path}: there is no such journal: name another file with --journal")
        uri = f"{path.absolute().as_uri()}?mode=ro"
        try:
            database = _looked_at(uri)
        except sqlite3.OperationalError:
            # Who may not write the folder cannot make the index of the log. Where there is no log nobody writes, and
            # the file is whole as it is.
            if _size(path.with_name(f"{path.name}-wal")):
                raise
            database = _looked_at(f"{uri}&immutable=1")
        with _closed_on_fault(database):
            version = _known_version(path, database)
            if version == 0:
                raise JournalError(f"{path}: {_FOREIGN}")
            if version == SCHEMA_VERSION:
                return database
            copy = sqlite3.connect(":memory:", isolation_level=None)
            with _closed_on_fault(copy), closing(database):
                database.backup(copy)
                with at_once(copy):
                    migrate(copy)
            return copy


@contextmanager
def at_once(database: sqlite3.Connection) -> Iterator[None]:
    """Let all that is written in a block take effect together, or none of it, also where it cannot be committed."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


@contextmanager
def said_plainly(path: Path) -> Iterator[None]:
    """Turn what SQLite complains of, and rows that make no sense, into one line."""
    try:
        yield
    except sqlite3.Error as err:
        name = getattr(err, "sqlite_errorname", "") or ""
        fault = next((text for start, text in _FAULTS.items() if name.startswith(start)), None)
        raise JournalError(f"{path}: {fault or 'cannot be used'} ({err})") from err
    except UnicodeEncodeError as err:
        raise JournalError(f"{path}: cannot hold a text that is not Unicode ({err.reason})") from err
    except (ValidationError, ValueError, KeyError) as err:
        raise JournalError(f"{path}: {DAMAGED}") from err


def _prepare(path: Path, database: sqlite3.Connection, *, thorough: bool) -> None:
    """Check an old file, or lay out a new one; in a log of its own, so that a kill leaves whole changes only."""
    version = _known_version(path, database)
    if thorough:
        (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise JournalError(f"{path}: {DAMAGED}")
    if version == 0 and database.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
        raise JournalError(f"{path}: {_FOREIGN}")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    # A log that one large write made long is cut again.
    database.execute(f"PRAGMA journal_size_limit = {_ABOVE_BYTES}")
    if 0 < version < SCHEMA_VERSION:
        _back_up(path, database, version)
    with at_once(database):
        if version == SCHEMA_VERSION:
            # A file that this user may not write is refused before anything is sent.
            database.execute("UPDATE site SET one = 1")
        else:
            # Another program may have done it meanwhile; then nothing is left to do.
            migrate(database)


def _known_version(path: Path, database: sqlite3.Connection) -> int:
    version = version_of(database)
    if version > SCHEMA_VERSION:
        raise JournalError(
            f"{path}: was written by a newer sadvise (schema {version}, this one knows {SCHEMA_VERSION}): "
            "use that one, or name another file with --journal"
        )
    return version


def _back_up(path: Path, database: sqlite3.Connection, version: int) -> None:
    """Keep a copy of a file as it was before it is brought up to date; a copy left by a failed try is replaced."""
    copy = path.with_name(f"{path.name}.schema-{version}")
    try:
        copy.unlink(missing_ok=True)
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as err:
        raise JournalError(f"{copy}: cannot be written, and without it {path} is not changed: {err.strerror}") from err
    with closing(sqlite3.connect(copy)) as kept:
        database.backup(kept)
    # Earlier versions let everybody read the file, and it names users. Who does not own it leaves it so.
    with suppress(PermissionError):
        path.chmod(0o600)


def _looked_at(uri: str) -> sqlite3.Connection:
    """Open a file and read from it once, for that is when SQLite finds out whether it can."""
    database = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    with _closed_on_fault(database):
        database.execute("SELECT 1 FROM sqlite_master").fetchone()
    return database


@contextmanager
def _closed_on_fault(database: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        database.close()
        raise


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
