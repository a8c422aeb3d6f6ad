"""Seals the tables that decide: keeps a digest of all rows of each, so that rows changed by another program show.

The digest of a table is the sum of the SHA-256 of its rows, which triggers keep up with every change, in the same
transaction. Every row of the audit carries the digest of the leases, which thereby are part of its chain.
"""

import hashlib
import json
import sqlite3
from typing import Final

# The leases with their objections and booked delay, what the delay timers learn from, what the breakers judge by, what
# users gained and gave, and to which cluster the file belongs.
SEALED: Final = ("leases", "waits", "outcomes", "standings", "site")
EMPTY: Final = "0" * 64
_MODULUS: Final = 1 << 256

_Value = str | int | float | bytes | None


def add_functions(database: sqlite3.Connection) -> None:
    """Define, for a connection, the functions of the triggers; without them the sealed tables cannot be changed."""
    database.create_function("sealed_with", -1, _sealed_with, deterministic=True)
    database.create_function("sealed_without", -1, _sealed_without, deterministic=True)
    # typeshed knows aggregates of one argument only.
    database.create_aggregate("seal_of", -1, _Seal)  # type: ignore[arg-type]


def seal(database: sqlite3.Connection) -> None:
    """Seal the tables as they are, with the columns that they have, in the caller's transaction."""
    for table in SEALED:
        columns = _columns(database, table)
        old, new = (", ".join(f"{row}.{column}" for column in columns) for row in ("OLD", "NEW"))
        digests = {
            "INSERT": f"sealed_with(digest, {new})",
            "UPDATE": f"sealed_with(sealed_without(digest, {old}), {new})",
            "DELETE": f"sealed_without(digest, {old})",
        }
        for event, digest in digests.items():
            trigger = f"{table}_sealed_at_{event.lower()}"
            database.execute(f"DROP TRIGGER IF EXISTS {trigger}")
            database.execute(
                f"CREATE TRIGGER {trigger} AFTER {event} ON {table} "  # noqa: S608  (ours)
                f"BEGIN UPDATE seals SET digest = {digest} WHERE name = '{table}'; END"
            )
        database.execute("INSERT OR REPLACE INTO seals VALUES (?, ?)", (table, _digest(database, table)))


def seal_of(database: sqlite3.Connection, table: str) -> str:
    """Return the seal of a table; empty if it has none."""
    row = database.execute("SELECT digest FROM seals WHERE name = ?", (table,)).fetchone()
    return "" if row is None else str(row[0])


def broken(database: sqlite3.Connection) -> tuple[str, ...]:
    """Return the names of the tables whose rows do not match their seal."""
    return tuple(table for table in SEALED if _digest(database, table) != seal_of(database, table))


def _digest(database: sqlite3.Connection, table: str) -> str:
    columns = ", ".join(_columns(database, table))
    (digest,) = database.execute(f"SELECT seal_of({columns}) FROM {table}").fetchone()  # noqa: S608  (ours)
    # Without rows SQLite does not call the function.
    return digest or EMPTY


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [f'"{name}"' for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]


class _Seal:
    """The aggregate function `seal_of`: the digest of rows."""

    def __init__(self) -> None:
        self._sum = 0

    def step(self, *row: _Value) -> None:
        """Add a row."""
        self._sum += _number(row)

    def finalize(self) -> str:
        """Return the digest."""
        return _text(self._sum)


def _sealed_with(digest: str, *row: _Value) -> str:
    return _text(int(digest, 16) + _number(row))


def _sealed_without(digest: str, *row: _Value) -> str:
    return _text(int(digest, 16) - _number(row))


def _number(row: tuple[_Value, ...]) -> int:
    content = json.dumps(row, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(content.encode()).digest())


def _text(number: int) -> str:
    return f"{number % _MODULUS:064x}"
