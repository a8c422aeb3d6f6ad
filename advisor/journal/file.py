"""Opens the file of the journal, to write or to read, and runs transactions; SQLite's faults are worded in one line.

Jobs are changed only by the program that holds the lock beside the file. `files_of` recognises the files: whether those
at a path are the ones that were used last, and as they were.
"""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from advisor.domain.dataclass import dataclass
from advisor.errors import JournalError, JournalFullError
from advisor.journal.schema import SCHEMA_VERSION, migrate, version_of
from advisor.journal.seals import add_functions

NO_FOLDER: Final = "its folder does not exist: create it, or name another file with --journal"
DAMAGED: Final = "is damaged: move it away, and check pending jobs by hand (`squeue -O JobID,Nice,MinNodes,MaxNodes`)"
_FOREIGN: Final = "is not a journal of sadvise: name another file with --journal"

# What SQLite's messages leave out: what a fault means here, and what to do.
_FAULTS: Mapping[str, str] = {
    "SQLITE_CORRUPT": DAMAGED,
    "SQLITE_NOTADB": _FOREIGN,
    "SQLITE_READONLY": "cannot be written: run as the user who owns it, or name another with --journal",
    "SQLITE_CANTOPEN": "cannot be opened: check that this user can write to it and its folder",
    "SQLITE_FULL": "cannot grow: its disk is full, and without it nothing is applied",
    "SQLITE_BUSY": "is in use by another program: try again later",
    "SQLITE_IOERR": "cannot be read or written: check its disk, which may be full",
}
# With these faults the file is as it was, and cannot take more.
_FULL: Final = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_SHMSIZE")
_ABOVE_BYTES: Final = 16 << 20
_LOCK_POLL_S: Final = 0.05


def connected(path: Path, *, thorough: bool = False) -> sqlite3.Connection:
    """Open a journal to write, or create it; raises `JournalError` for one that is damaged, foreign or newer.

    With `thorough` every page is checked, which takes seconds for a large journal.
    """
    if not path.parent.is_dir():
        raise JournalError(f"{path}: {NO_FOLDER}")
    with faults_translated(path):
        # SQLite gives the files that it creates beside this one the same permissions, and reports what cannot be made.
        with suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        # One thread of the daemon opens the file and another uses it, one at a time.
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        with _closed_on_fault(database):
            add_functions(database)
            _prepare(path, database, thorough=thorough)
        return database


def connected_read_only(path: Path) -> sqlite3.Connection:
    """Open a journal read-only, also while another program writes it and without permission to write.

    A journal of an earlier version, or one that another program has just created, is migrated in a copy in memory.
    Raises `JournalError`.
    """
    with faults_translated(path):
        try:
            is_there = path.is_file()
        except OSError as err:
            raise JournalError(f"{path}: cannot be opened: {err.strerror}") from err
        if not is_there:
            raise JournalError(f"{path}: no such journal: name another file with --journal")
        if not os.access(path, os.R_OK, effective_ids=True):
            raise JournalError(f"{path}: is closed to this user: run as root or as its owner")
        uri = f"{path.absolute().as_uri()}?mode=ro"
        try:
            database = _opened_read_only(uri)
        except sqlite3.OperationalError:
            # Without permission to write the folder, the index of the log cannot be created. If there is no log, no
            # program writes, and the file is complete by itself.
            if _size(path.with_name(f"{path.name}-wal")):
                raise
            database = _opened_read_only(f"{uri}&immutable=1")
        with _closed_on_fault(database):
            version = _known_version(path, database)
            if version == SCHEMA_VERSION:
                return database
            copy = sqlite3.connect(":memory:", isolation_level=None)
            with _closed_on_fault(copy), closing(database):
                add_functions(copy)
                database.backup(copy)
                with transaction(copy):
                    migrate(copy)
            return copy


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Run a block in one transaction: commit all of it, or roll it back on any exception."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


@contextmanager
def faults_translated(path: Path) -> Iterator[None]:
    """Translate SQLite's errors, and rows that cannot be decoded, into a `JournalError` of one line."""
    try:
        yield
    except sqlite3.Error as err:
        name = getattr(err, "sqlite_errorname", "") or ""
        fault = next((text for start, text in _FAULTS.items() if name.startswith(start)), None)
        kind = JournalFullError if name in _FULL else JournalError
        raise kind(f"{path}: {fault or 'cannot be used'} ({err})") from err
    except UnicodeEncodeError as err:
        raise JournalError(f"{path}: cannot hold a text that is not Unicode ({err.reason})") from err
    except (ValidationError, ValueError, KeyError) as err:
        raise JournalError(f"{path}: {DAMAGED}") from err


def _prepare(path: Path, database: sqlite3.Connection, *, thorough: bool) -> None:
    """Check an existing file, or create the tables of a new one; with a write-ahead log, so that a kill is harmless."""
    version = _known_version(path, database)
    if thorough:
        (result,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        if result != "ok":
            raise JournalError(f"{path}: {DAMAGED}")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    # A log that one large write made long is truncated again.
    database.execute(f"PRAGMA journal_size_limit = {_ABOVE_BYTES}")
    if 0 < version < SCHEMA_VERSION:
        _back_up(path, database, version)
    with transaction(database):
        if version == SCHEMA_VERSION:
            # A file that this user cannot write is refused before anything is sent.
            database.execute("UPDATE site SET one = 1")
        else:
            # If another program has migrated it meanwhile, this does nothing.
            migrate(database)


def _known_version(path: Path, database: sqlite3.Connection) -> int:
    """Return the schema version; 0 for a file without tables. Refuses a newer one, and tables that are not ours."""
    version = version_of(database)
    if version == 0 and database.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
        raise JournalError(f"{path}: {_FOREIGN}")
    if version > SCHEMA_VERSION:
        raise JournalError(
            f"{path}: was written by a newer sadvise (schema {version}, this one knows {SCHEMA_VERSION}): "
            "use that one, or name another file with --journal"
        )
    return version


def _back_up(path: Path, database: sqlite3.Connection, version: int) -> None:
    """Copy a file before it is migrated; a copy left by a failed attempt is replaced."""
    copy = path.with_name(f"{path.name}.schema-{version}")
    try:
        copy.unlink(missing_ok=True)
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as err:
        raise JournalError(f"{copy}: cannot be written, and without it {path} is not changed: {err.strerror}") from err
    with closing(sqlite3.connect(copy)) as kept:
        database.backup(kept)
    # Earlier versions made the file readable for everyone, and it names users. Only its owner can change that.
    with suppress(PermissionError):
        path.chmod(0o600)


def _opened_read_only(uri: str) -> sqlite3.Connection:
    """Open a file and read from it once, since SQLite reports only then whether it can."""
    database = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    with _closed_on_fault(database):
        add_functions(database)
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


@contextmanager
def locked(path: Path, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock file beside a journal for a block; the lock ends with the process in any case.

    Raises `JournalError` if another process still holds it after `wait_s`.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError as err:
        raise JournalError(f"{path}: {NO_FOLDER}") from err
    except OSError as err:
        raise JournalError(f"{lock}: cannot be opened: {err.strerror}: name another file with --journal") from err
    with open(descriptor, "r+b", buffering=0):  # noqa: PTH123  (a descriptor)
        deadline = time.monotonic() + wait_s
        while not taken(descriptor):
            if time.monotonic() >= deadline:
                raise JournalError(f"{path}: another sadvise is changing jobs with it: wait until it is done")
            time.sleep(_LOCK_POLL_S)
        yield


def taken(descriptor: int) -> bool:
    """Take a lock and return True, or return False if another process holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """One file; `changed_time_ns` is when its content or its name was last changed, which no program can set."""

    device: int
    inode: int
    size: int
    changed_time_ns: int

    def is_file(self, other: "FileState | None") -> bool:
        """Return whether another state is of the same file."""
        return other is not None and (self.device, self.inode) == (other.device, other.inode)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFiles:
    """The file of a journal and its write-ahead log; None for one that is not there."""

    database: FileState | None
    log: FileState | None

    def is_same(self, other: "JournalFiles") -> bool:
        """Return whether every file that is there is the same one in `other`."""
        pairs = ((self.database, other.database), (self.log, other.log))
        return all(mine is None or mine.is_file(theirs) for mine, theirs in pairs)


def files_of(path: Path) -> JournalFiles:
    """Return the files of a journal as they are now; raises `OSError` if they cannot be looked at."""
    return JournalFiles(database=_state(path), log=_state(path.with_name(f"{path.name}-wal")))


def _state(path: Path) -> FileState | None:
    try:
        seen = path.stat()
    except FileNotFoundError:
        return None
    return FileState(device=seen.st_dev, inode=seen.st_ino, size=seen.st_size, changed_time_ns=seen.st_ctime_ns)
