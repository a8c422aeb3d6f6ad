"""Fault points: where a process can be ended by kill -9, around everything that writes or asks Slurm."""

import ctypes
import functools
import os
import random
import signal
import sqlite3
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast
from unittest import mock

from advisor.apply.applier import Actuator
from advisor.backends.process import Answer, FedCommands, Stream
from advisor.domain.actions import Action
from advisor.domain.plan import Receipt
from advisor.journal import SqliteJournal

# How a child says that it ended as it should, or that something was raised.
DONE, RAISED = 0, 70
# Of linux/prctl.h.
_PR_SET_CHILD_SUBREAPER: Final = 36
# Slurm takes some milliseconds for a batch, so a kill while one is under way comes within these.
IN_FLIGHT_S = 0.03

JOURNAL_WRITES = ("claim", "keep", "close", "add_waits")
JOURNAL_POINTS = tuple(f"{when} journal.{name}" for name in JOURNAL_WRITES for when in ("before", "after"))
SQL_POINTS = (
    "before BEGIN",
    "after BEGIN",
    "inside a transaction, after DELETE",
    "inside a transaction, after INSERT",
    "inside a transaction, after UPDATE",
    "before COMMIT",
    "after COMMIT",
)
SLURM_POINTS = (
    "before actuator.apply",
    "before the first read",
    "after the first read",
    "before the command",
    "while the command runs",
    "after the command",
    "before the read back",
    "after the read back",
    "after actuator.apply",
)
ALL_POINTS = (*JOURNAL_POINTS, *SQL_POINTS, *SLURM_POINTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """The fault point at which a process dies, and how often it passes it unharmed before."""

    point: str
    spared: int = 0
    delay_s: float = 0.0


@dataclass
class Points:
    """Counts the fault points that this process passes, and ends it at the one aimed at, as the kernel would."""

    aim: Aim | None = None
    passed: Counter[str] = field(default_factory=Counter)

    def at(self, point: str) -> None:
        """Pass a fault point, or die there."""
        if self._is_aimed(point):
            os.kill(os.getpid(), signal.SIGKILL)

    def during(self, point: str) -> None:
        """Pass a fault point after which something takes a while, or die somewhere within that."""
        if self._is_aimed(point) and self.aim is not None:
            threading.Timer(self.aim.delay_s, os.kill, (os.getpid(), signal.SIGKILL)).start()

    def _is_aimed(self, point: str) -> bool:
        self.passed[point] += 1
        return self.aim is not None and point == self.aim.point and self.passed[point] > self.aim.spared


def deadly_journal(path: Path, points: Points) -> SqliteJournal:
    """Return a journal with a fault point before and after every write that a step makes."""

    def around(name: str) -> Callable[..., None]:
        write = getattr(SqliteJournal, name)

        def deadly(journal: SqliteJournal, *arguments: object) -> None:
            points.at(f"before journal.{name}")
            write(journal, *arguments)
            points.at(f"after journal.{name}")

        return deadly

    kind = type("DeadlyJournal", (SqliteJournal,), {name: around(name) for name in JOURNAL_WRITES})
    return cast(SqliteJournal, kind(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlyActuator:
    """An actuator with a fault point before and after every change."""

    inner: Actuator
    points: Points

    def apply(self, action: Action) -> Receipt:
        """Carry out one action."""
        self.points.at("before actuator.apply")
        receipt = self.inner.apply(action)
        self.points.at("after actuator.apply")
        return receipt

    def apply_all(self, changes: Sequence[Action]) -> tuple[Receipt, ...]:
        """Make changes."""
        self.points.at("before actuator.apply")
        receipts = self.inner.apply_all(changes)
        self.points.at("after actuator.apply")
        return receipts

    def hides_range_end(self, job_id: int) -> bool:
        """Look at a job."""
        return self.inner.hides_range_end(job_id)


@dataclass
class DeadlyCommands:
    """Slurm's commands with fault points around each; the read that follows a change is the read back."""

    inner: FedCommands
    points: Points
    has_sent: bool = False

    @property
    def cluster(self) -> str | None:
        """The cluster that is asked."""
        return self.inner.cluster

    def ask(self, program: str, *arguments: str) -> Answer:
        """Run a command."""
        if program == "scontrol":
            with self._sending():
                return self.inner.ask(program, *arguments)
        return self._read(lambda: self.inner.ask(program, *arguments))

    def stream(self, program: str, *arguments: str, variables: Mapping[str, str]) -> Stream:
        """Run a command that reads."""
        return self._read(lambda: _whole(self.inner.stream(program, *arguments, variables=variables)))

    def _read(self, run: Callable[[], Answer]) -> Answer:
        read = "read back" if self.has_sent else "first read"
        self.has_sent = False
        self.points.at(f"before the {read}")
        answer = run()
        self.points.at(f"after the {read}")
        return answer

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Run a command that reads lines."""
        with self._sending():
            return self.inner.feed(program, lines)

    @contextmanager
    def _sending(self) -> Iterator[None]:
        self.has_sent = True
        self.points.at("before the command")
        self.points.during("while the command runs")
        yield
        self.points.at("after the command")


def _whole(stream: Stream) -> Answer:
    """Read a stream to its end."""
    return Answer(output=b"".join(stream), complaints=stream.complaints)


def deadly_connection(points: Points) -> type[sqlite3.Connection]:
    """Return a kind of SQLite connection with fault points around and inside every transaction."""

    class DeadlyConnection(sqlite3.Connection):
        """A connection whose statements are fault points."""

        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            """Run a statement."""
            return self._around(sql, lambda: super(DeadlyConnection, self).execute(sql, *arguments))

        def executemany(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            """Run a statement for many rows."""
            return self._around(sql, lambda: super(DeadlyConnection, self).executemany(sql, *arguments))

        def _around(self, sql: str, run: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
            verb = sql.split(maxsplit=1)[0].upper() if sql.strip() else ""
            if verb in ("BEGIN", "COMMIT"):
                points.at(f"before {verb}")
            cursor = run()
            if verb in ("BEGIN", "COMMIT"):
                points.at(f"after {verb}")
            elif self.in_transaction and verb in ("DELETE", "INSERT", "UPDATE"):
                points.at(f"inside a transaction, after {verb}")
            return cursor

    return DeadlyConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """Says how a child ended: killed where it was aimed at, or done, or by an error, which then stands in `error`."""

    killed: bool
    error: str = ""


def in_a_child(work: Callable[[Points], None], aim: Aim | None) -> Fate:
    """Do some work in a process of its own that shares nothing open with this one, and say how it ended.

    What a killed one had started goes on; this returns once that is over, too.
    """
    reading, writing = os.pipe()
    before = _children()
    with _adopting():
        child = os.fork()
        if child == 0:
            os.close(reading)
            _live(work, Points(aim=aim), writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            error = pipe.read().decode(errors="replace")
        _, status = os.waitpid(child, 0)
        while orphans := _children() - before:
            for orphan in orphans:
                os.waitpid(orphan, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (DONE, RAISED, -signal.SIGKILL):
        error = error or f"the child ended with {code}"
    return Fate(killed=code == -signal.SIGKILL, error=error)


@contextmanager
def _adopting() -> Iterator[None]:
    """Let processes whose parent has ended become children of this one while the block runs."""
    _set_subreaper(True)
    try:
        yield
    finally:
        _set_subreaper(False)


def _set_subreaper(is_one: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(is_one), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _children() -> set[int]:
    """Return the processes that are children of this one."""
    lists = (task.read_text() for task in Path("/proc/self/task").glob("*/children"))
    return {int(pid) for pids in lists for pid in pids.split()}


def _live(work: Callable[[Points], None], points: Points, writing: int) -> None:
    """Be the child, to its end."""
    code = RAISED
    try:
        connect = functools.partial(sqlite3.connect, factory=deadly_connection(points))
        with mock.patch.object(sqlite3, "connect", connect):
            work(points)
        code = DONE
    except BaseException:
        os.write(writing, traceback.format_exc()[-2000:].encode())
    finally:
        sys.stdout.flush()
        os._exit(code)


def aimed(chance: random.Random, hits: Counter[str]) -> Aim:
    """Aim at one of the fault points, half of the time at one that was hit least."""
    least = min(hits[point] for point in ALL_POINTS)
    rare = [point for point in ALL_POINTS if hits[point] == least]
    point = chance.choice(rare if chance.random() < 0.5 else ALL_POINTS)
    spared = chance.choice((0, 0, 0, 0, 0, 1, 1, 2, 4))
    return Aim(point=point, spared=spared, delay_s=chance.uniform(0.0, IN_FLIGHT_S))
