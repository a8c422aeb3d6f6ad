"""Implements the journal as a SQLite file: outstanding changes and what was done, across kills and restarts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from advisor.clock import Clock, SystemClock
from advisor.domain.units import DAY_S
from advisor.journal import audit
from advisor.journal.base import BREAKERS, PROVEN
from advisor.journal.cycles import CycleTables
from advisor.journal.file import connected, connected_read_only
from advisor.journal.lease_tables import LeaseTables
from advisor.journal.lock import locked
from advisor.journal.outcome_tables import OutcomeTables
from advisor.settings import JournalSettings

# The newest rows are kept at any age, so that a clock that jumps ahead does not empty the journal.
LEAST_KEPT: Final = 10_000
# Events that hold until a newer one: the newest row of each outlives the retention.
_LASTING: Final = (BREAKERS, PROVEN)


class SqliteJournal(LeaseTables, CycleTables, OutcomeTables):
    """A journal in a file; open it with `opened`, so that only one program at a time changes jobs with it."""

    def __init__(
        self,
        path: Path,
        *,
        thorough: bool = False,
        retention: JournalSettings | None = None,
        clock: Clock | None = None,
        read_only: bool = False,
    ) -> None:
        """Open a journal, or create it; raises `JournalError` for one that is damaged, foreign or newer.

        With `thorough` every page is checked; with `read_only` nothing can be written.
        """
        super().__init__(
            path,
            connected_read_only(path) if read_only else connected(path, thorough=thorough),
            retention=retention or JournalSettings(),
            clock=clock or SystemClock(),
        )

    @classmethod
    def read_only(cls, path: Path) -> Self:
        """Open a journal read-only, also while a daemon writes it; raises `JournalError`."""
        return cls(path, read_only=True)

    def prune(self, now: float) -> None:
        """Delete rows that are older than the retention, and truncate SQLite's write-ahead log."""
        before = now - self._retention.keep_days * DAY_S
        with self._writing():
            self._database.execute(
                "DELETE FROM records WHERE frame IN (SELECT frame FROM records GROUP BY frame "
                "HAVING max(cycle_id) IN (SELECT id FROM cycles WHERE taken_at < ?)) "
                "AND frame < (SELECT max(frame) FROM records)",
                (before,),
            )
            self._make_room()
            self._database.execute(
                "DELETE FROM cycles WHERE taken_at < ? AND id <= (SELECT max(id) FROM cycles) - ? "
                "AND id NOT IN (SELECT cycle_id FROM records)",
                (before, LEAST_KEPT),
            )
            self._database.execute(
                "DELETE FROM changes WHERE time < ? AND id <= (SELECT max(id) FROM changes) - ?", (before, LEAST_KEPT)
            )
            self._database.execute("DELETE FROM outcomes WHERE end_time < ?", (before,))
            lasting = [row for event in _LASTING if (row := audit.last(self._database, event)) is not None]
            rows = audit.prune(self._database, before, LEAST_KEPT)
            if rows:
                audit.append(self._database, now, "pruned", {"rows": rows})
                for row in lasting:
                    if audit.last(self._database, row.event) is None:
                        audit.append(self._database, now, row.event, row.detail)
        with self._reading():
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


@contextmanager
def opened(path: Path, *, wait_s: float = 0.0) -> Iterator[SqliteJournal]:
    """Open a journal under its lock for a block.

    Raises `JournalError` if another process still holds the lock after `wait_s`.
    """
    with locked(path, wait_s=wait_s):
        journal = SqliteJournal(path)
        try:
            yield journal
        finally:
            journal.close_file()
