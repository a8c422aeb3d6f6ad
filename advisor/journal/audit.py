"""Keeps the audit: every change of a lease and every event of the daemon, in rows that are chained by their hashes.

The chain shows whether a row was changed, deleted or inserted, and the seal in its last row whether a lease was. It
cannot show that the newest rows were cut off, or that the whole chain was rewritten: to detect that, keep the last hash
elsewhere.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping

from advisor.domain.dataclass import dataclass
from advisor.journal.seals import EMPTY, broken, seal_of

Detail = str | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One row of the audit; `time` is when it was written."""

    number: int
    time: float
    event: str
    detail: Mapping[str, Detail]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of a check of the chain: the count of valid rows, the last hash, and the first broken row.

    `tables` names the other tables whose rows were changed by another program.
    """

    rows: int
    first: int
    last_hash: str
    broken: int | None = None
    fault: str = ""
    tables: tuple[str, ...] = ()

    @property
    def is_intact(self) -> bool:
        """Whether nothing was changed by another program, as far as that shows."""
        return self.broken is None and not self.tables


def append(database: sqlite3.Connection, time: float, event: str, detail: Mapping[str, Detail]) -> None:
    """Write a row, in the caller's transaction, which also holds the change that the row describes."""
    last = database.execute("SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1").fetchone()
    number, previous = last or database.execute("SELECT id, hash FROM audit_anchor").fetchone()
    text = json.dumps(dict(detail), sort_keys=True, separators=(",", ":"))
    leases = seal_of(database, "leases")
    database.execute(
        "INSERT INTO audit (id, time, event, detail, leases, previous, hash) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (number + 1, time, event, text, leases, previous, _hash(number + 1, time, event, text, leases, previous)),
    )


def rows(database: sqlite3.Connection, since: float, most: int) -> Iterator[AuditRow]:
    """Return the rows written after an instant, newest first."""
    cursor = database.execute(
        "SELECT id, time, event, detail FROM audit WHERE time > ? ORDER BY id DESC LIMIT ?", (since, most)
    )
    for number, time, event, detail in cursor:
        yield AuditRow(number=number, time=time, event=event, detail=json.loads(detail))


def rows_after(database: sqlite3.Connection, number: int) -> Iterator[AuditRow]:
    """Return the rows after one, oldest first."""
    cursor = database.execute("SELECT id, time, event, detail FROM audit WHERE id > ? ORDER BY id", (number,))
    for row_number, time, event, detail in cursor:
        yield AuditRow(number=row_number, time=time, event=event, detail=json.loads(detail))


def newest(database: sqlite3.Connection) -> int:
    """Return the number of the newest row; 0 if there is none."""
    return int(database.execute("SELECT max(id) FROM audit").fetchone()[0] or 0)


def last(database: sqlite3.Connection, event: str) -> AuditRow | None:
    """Return the newest row about an event; None if there is none."""
    row = database.execute(
        "SELECT id, time, event, detail FROM audit WHERE event = ? ORDER BY id DESC LIMIT 1", (event,)
    ).fetchone()
    if row is None:
        return None
    number, time, _, detail = row
    return AuditRow(number=number, time=time, event=event, detail=json.loads(detail))


def verify(database: sqlite3.Connection) -> Verified:
    """Check the chain from its anchor to its end, or to the first broken row, and the tables against their seals."""
    tables = set(broken(database))
    anchor, expected = database.execute("SELECT id, hash FROM audit_anchor").fetchone()
    count, sealed = 0, EMPTY
    for number, time, event, detail, leases, previous, written_hash in database.execute(
        "SELECT id, time, event, detail, leases, previous, hash FROM audit ORDER BY id"
    ):
        fault = ""
        if number != anchor + count + 1:
            fault = f"row {anchor + count + 1} is missing"
        elif previous != expected:
            fault = "it does not follow from the row before it"
        elif written_hash != _hash(number, time, event, detail, leases, previous):
            fault = "it was changed after it was written"
        if fault:
            return Verified(
                rows=count,
                first=anchor + 1,
                last_hash=expected,
                broken=number,
                fault=fault,
                tables=tuple(sorted(tables)),
            )
        expected, sealed, count = written_hash, leases, count + 1
    # Rows of earlier versions carry no seal.
    if sealed and sealed != seal_of(database, "leases"):
        tables.add("leases")
    return Verified(rows=count, first=anchor + 1, last_hash=expected, tables=tuple(sorted(tables)))


def prune(database: sqlite3.Connection, before: float, least: int) -> int:
    """Delete the rows up to the last one written before an instant, except the newest `least`; return the count."""
    last = database.execute(
        "SELECT id, hash FROM audit WHERE time < ? AND id <= ? ORDER BY id DESC LIMIT 1",
        (before, newest(database) - least),
    ).fetchone()
    if last is None:
        return 0
    database.execute("UPDATE audit_anchor SET id = ?, hash = ?", last)
    return database.execute("DELETE FROM audit WHERE id <= ?", (last[0],)).rowcount


def _hash(number: int, time: float, event: str, detail: str, leases: str, previous: str) -> str:
    sealed = [leases] if leases else []
    content = json.dumps([number, time, event, detail, *sealed], separators=(",", ":"))
    return hashlib.sha256(f"{previous}\n{content}".encode()).hexdigest()
