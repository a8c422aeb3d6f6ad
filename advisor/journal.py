"""The journal as a SQLite file: what is out and how long gangs waited, kept through kills and restarts."""

import fcntl
import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from advisor.domain.lease import Ending, Lease, LeaseState
from advisor.domain.plan import Action, Lever, Requeue, SetGpus, SetNice, SetNodeRange, SetSwitches, SetTimeMin
from advisor.domain.topology import LocalityTier
from advisor.domain.waits import Wait
from advisor.errors import JournalError
from advisor.ports import KEPT_S, check_owner

SCHEMA_VERSION: Final = 1

_SCHEMA: Final = """
CREATE TABLE site (one INTEGER PRIMARY KEY CHECK (one = 1), cluster TEXT, observed_until REAL) STRICT;
INSERT INTO site (one) VALUES (1);
CREATE TABLE leases (
  id INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, lever TEXT NOT NULL, action TEXT NOT NULL, undo TEXT NOT NULL,
  applied_time REAL NOT NULL, due_time REAL, state TEXT NOT NULL, ending TEXT, ended_time REAL
) STRICT;
CREATE UNIQUE INDEX open_leases ON leases (job_id, lever) WHERE ending IS NULL;
CREATE INDEX closed_leases ON leases (ended_time) WHERE ending IS NOT NULL;
CREATE TABLE waits (
  id INTEGER PRIMARY KEY, gpus INTEGER NOT NULL, tier TEXT NOT NULL, waited_s REAL NOT NULL, got INTEGER NOT NULL,
  ended_time REAL NOT NULL
) STRICT;
CREATE INDEX waits_by_end ON waits (ended_time);
PRAGMA user_version = 1;
"""
# STRICT holds every column to its type; SQLite knows it from 3.37 on.
_KNOWS_STRICT: Final = sqlite3.sqlite_version_info >= (3, 37)
_LEASE_COLUMNS: Final = "lever, action, undo, applied_time, due_time, state, ending, ended_time"

# The lever stands beside the JSON of an action and says which kind it is.
_ACTIONS: Mapping[Lever, TypeAdapter[Any]] = {
    Lever.NICE: TypeAdapter(SetNice),
    Lever.SWITCHES: TypeAdapter(SetSwitches),
    Lever.NODE_RANGE: TypeAdapter(SetNodeRange),
    Lever.GPU_COUNT: TypeAdapter(SetGpus),
    Lever.TIME_MIN: TypeAdapter(SetTimeMin),
    Lever.CHECKPOINT_REQUEUE: TypeAdapter(Requeue),
}

# What SQLite's own words leave out: what it means here, and what to do.
_FAULTS: Mapping[str, str] = {
    "SQLITE_CORRUPT": "is damaged: move it away, and look at pending jobs by hand (`squeue -O JobID,Nice,MaxNodes`)",
    "SQLITE_NOTADB": "is no journal of sadvise: name another file with --journal",
    "SQLITE_READONLY": "cannot be written: run as the user who owns it, or name another with --journal",
    "SQLITE_CANTOPEN": "cannot be opened: check that this user may write it and its folder",
    "SQLITE_FULL": "cannot grow: its disk is full, and without it nothing is applied",
    "SQLITE_BUSY": "is held by another program: try again when that is done",
    "SQLITE_IOERR": "cannot be read or written: check its disk",
}
_LOCK_POLL_S: Final = 0.05
_NO_FOLDER: Final = "its folder is not there: make it, or name another file with --journal"


class SqliteJournal:
    """A journal in a file; `opened` sees to it that no two programs write one at a time."""

    def __init__(self, path: Path) -> None:
        """Open a journal, or make a new one; raises `JournalError` for one that is damaged, foreign or newer."""
        self._path = path
        if not path.parent.is_dir():
            raise JournalError(f"{path}: {_NO_FOLDER}")
        with self._said_plainly():
            self._database = sqlite3.connect(path, isolation_level=None)
        try:
            with self._said_plainly():
                self._prepare()
        except BaseException:
            self._database.close()
            raise

    def close_file(self) -> None:
        """Close the file; the journal is of no use then."""
        self._database.close()

    def claim(self, cluster: str) -> None:
        """Belong to a cluster from the first call on; raises `ConfigError` for any other."""
        with self._said_plainly():
            (owner,) = self._database.execute("SELECT cluster FROM site").fetchone()
            check_owner(owner, cluster, str(self._path))
            if owner is None:
                self._database.execute("UPDATE site SET cluster = ?", (cluster,))

    def keep(self, lease: Lease) -> None:
        """Write down an open lease in place of the job's earlier one on the field."""
        with self._said_plainly(), self._at_once():
            self._remove(lease)
            self._insert(lease)

    def close(self, lease: Lease, ending: Ending, ended_time: float) -> None:
        """Write down how an open lease ended, and forget those that ended too long ago."""
        with self._said_plainly(), self._at_once():
            self._remove(lease)
            self._insert(lease.ended(ending, ended_time))
            self._database.execute("DELETE FROM leases WHERE ended_time <= ?", (ended_time - KEPT_S,))

    def leases(self) -> tuple[Lease, ...]:
        """Return the open leases, by job and field."""
        return self._read_leases("WHERE ending IS NULL ORDER BY job_id, lever")

    def closed(self, job_ids: Collection[int], since: float | None = None) -> tuple[Lease, ...]:
        """Return the leases of jobs, and of any job since an instant, that ended, in the order in which they did."""
        found = self._read_leases("WHERE ending IS NOT NULL ORDER BY ended_time, id")
        return tuple(
            lease
            for lease in found
            if lease.job_id in job_ids or (since is not None and (lease.ended_time or 0.0) > since)
        )

    def add_waits(self, waits: Iterable[Wait], observed_until: float) -> None:
        """Add waits with the instant up to which starts have been looked at, and forget what ended too long ago."""
        rows = [(wait.gpus, wait.tier.name, wait.waited_s, wait.got, wait.ended_time) for wait in waits]
        with self._said_plainly(), self._at_once():
            self._database.executemany(
                "INSERT INTO waits (gpus, tier, waited_s, got, ended_time) VALUES (?, ?, ?, ?, ?)", rows
            )
            self._database.execute("UPDATE site SET observed_until = ?", (observed_until,))
            self._database.execute("DELETE FROM waits WHERE ended_time <= ?", (observed_until - KEPT_S,))

    def waits(self, since: float) -> tuple[Wait, ...]:
        """Return the waits that ended after an instant, in the order in which they did."""
        with self._said_plainly():
            rows = self._database.execute(
                "SELECT gpus, tier, waited_s, got, ended_time FROM waits WHERE ended_time > ? ORDER BY ended_time, id",
                (since,),
            ).fetchall()
            return tuple(
                Wait(gpus=gpus, tier=LocalityTier[tier], waited_s=waited_s, got=bool(got), ended_time=ended_time)
                for gpus, tier, waited_s, got, ended_time in rows
            )

    def observed_until(self) -> float | None:
        """Return up to which instant starts have been looked at; None if never."""
        with self._said_plainly():
            (until,) = self._database.execute("SELECT observed_until FROM site").fetchone()
            return None if until is None else float(until)

    def _prepare(self) -> None:
        """Check an old file, or lay out a new one; in a log of its own, so that a kill leaves whole changes only."""
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise JournalError(
                f"{self._path}: was written by a newer sadvise (schema {version}, this one knows {SCHEMA_VERSION}): "
                "use that one, or name another file with --journal"
            )
        (found,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise JournalError(f"{self._path}: {_FAULTS['SQLITE_CORRUPT']}")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        if version == 0:
            with self._at_once():
                if self._database.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
                    raise JournalError(f"{self._path}: {_FAULTS['SQLITE_NOTADB']}")
                for statement in (_SCHEMA if _KNOWS_STRICT else _SCHEMA.replace(" STRICT", "")).split(";"):
                    self._database.execute(statement)
        else:
            # A file that this user may not write is refused before anything is sent.
            with self._at_once():
                self._database.execute("UPDATE site SET one = 1")

    def _insert(self, lease: Lease) -> None:
        self._database.execute(
            f"INSERT INTO leases (job_id, {_LEASE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  (ours)
            (
                lease.job_id,
                lease.lever,
                _ACTIONS[lease.lever].dump_json(lease.action).decode(),
                _ACTIONS[lease.lever].dump_json(lease.undo).decode(),
                lease.applied_time,
                lease.due_time,
                lease.state,
                lease.ending,
                lease.ended_time,
            ),
        )

    def _remove(self, lease: Lease) -> None:
        self._database.execute(
            "DELETE FROM leases WHERE job_id = ? AND lever = ? AND ending IS NULL", (lease.job_id, lease.lever)
        )

    def _read_leases(self, which: str) -> tuple[Lease, ...]:
        with self._said_plainly():
            rows = self._database.execute(f"SELECT {_LEASE_COLUMNS} FROM leases {which}")  # noqa: S608  (ours)
            return tuple(_lease(*row) for row in rows.fetchall())

    @contextmanager
    def _at_once(self) -> Iterator[None]:
        """Let all that is written in a block take effect together, or none of it."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    @contextmanager
    def _said_plainly(self) -> Iterator[None]:
        """Turn what SQLite complains of, and rows that make no sense, into one line."""
        try:
            yield
        except sqlite3.Error as err:
            name = getattr(err, "sqlite_errorname", "") or ""
            fault = next((text for start, text in _FAULTS.items() if name.startswith(start)), None)
            raise JournalError(f"{self._path}: {fault or 'cannot be used'} ({err})") from err
        except (ValidationError, ValueError, KeyError) as err:
            raise JournalError(f"{self._path}: {_FAULTS['SQLITE_CORRUPT']}") from err


@contextmanager
def opened(path: Path, *, wait_s: float = 0.0) -> Iterator[SqliteJournal]:
    """Open a journal under its lock for as long as the block lasts.

    Raises `JournalError` where another still holds it after `wait_s`.
    """
    with locked(path, wait_s=wait_s):
        journal = SqliteJournal(path)
        try:
            yield journal
        finally:
            journal.close_file()


@contextmanager
def locked(path: Path, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock beside a journal, under which jobs are changed; it ends with the process, however that ends.

    Raises `JournalError` where another still holds it after `wait_s`.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError as err:
        raise JournalError(f"{path}: {_NO_FOLDER}") from err
    except OSError as err:
        raise JournalError(f"{lock}: cannot be opened: {err.strerror}: name another file with --journal") from err
    with open(descriptor, "r+b", buffering=0):  # noqa: PTH123  (a descriptor)
        deadline = time.monotonic() + wait_s
        while not _taken(descriptor):
            if time.monotonic() >= deadline:
                raise JournalError(f"{path}: another sadvise is changing jobs with it: wait until it is done")
            time.sleep(_LOCK_POLL_S)
        yield


def _taken(descriptor: int) -> bool:
    """Take a lock if nobody holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lease(
    lever: str,
    action: str,
    undo: str,
    applied_time: float,
    due_time: float | None,
    state: str,
    ending: str | None,
    ended_time: float | None,
) -> Lease:
    return Lease(
        action=_action(lever, action),
        undo=_action(lever, undo),
        applied_time=applied_time,
        due_time=due_time,
        state=LeaseState(state),
        ending=None if ending is None else Ending(ending),
        ended_time=ended_time,
    )


def _action(lever: str, text: str) -> Action:
    action: Action = _ACTIONS[Lever(lever)].validate_json(text, strict=True)
    return action
