"""Implements the journal as a SQLite file: outstanding changes and what was done, across kills and restarts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from advisor.apply.memory_journal import MemoryJournal
from advisor.apply.step import Reconciled
from advisor.clock import Clock, SystemClock
from advisor.domain.actions import Lever
from advisor.domain.lease import Ending, Lease, LeaseState
from advisor.domain.plan import Outcome, Receipt
from advisor.domain.units import DAY_S
from advisor.journal import audit
from advisor.journal.base import BREAKERS, DRIFTED, ORDER_SEEN, PROVEN
from advisor.journal.cycles import CycleTables
from advisor.journal.file import connected, connected_read_only, locked
from advisor.journal.reserve import Reserve
from advisor.journal.sealed_tables import SealedTables
from advisor.settings import JournalSettings

# The newest rows are kept at any age, so that a clock that jumps ahead does not empty the journal.
LEAST_KEPT: Final = 10_000
# Events that hold until a newer one: the newest row of each outlives the retention.
_LASTING: Final = (BREAKERS, PROVEN, DRIFTED, ORDER_SEEN)
_REVERTED: Final = (Ending.TAKEN_BACK, Ending.REVERTED)


class SqliteJournal(SealedTables, CycleTables):
    """A journal in a file; open it with `opened`, so that only one program at a time changes jobs with it.

    Its tables are in `sealed_tables` and `cycles`.
    """

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

    def settle(self) -> None:
        """Record what was reverted while there was no room; raises `JournalFullError` where the reserve has none."""
        reserve = Reserve(self._path)
        reserve.prepare()
        leases = {_field(lease): lease for lease in self.leases()}
        reverted = reserve.leases()
        for lease in reverted:
            if not _is_among(leases, lease):
                continue
            if lease.ending is None or lease.ended_time is None:
                self.keep(lease)
            else:
                self.close(lease, lease.ending, lease.ended_time)
                receipt = Receipt(action=lease.undo, outcome=Outcome.APPLIED)
                self.returns(lease.ended_time, Reconciled(taken_back=(receipt,)))
        if reverted:
            reserve.keep(())

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
            self._database.execute("DELETE FROM standings WHERE until < ?", (before,))
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
            journal.settle()
            yield journal
        finally:
            journal.close_file()


@contextmanager
def opened_full(path: Path, *, wait_s: float = 0.0) -> Iterator[MemoryJournal]:
    """Open a journal that cannot grow, under its lock, to revert changes: in memory, with the outcome in its reserve.

    Raises `JournalError` if it cannot be read either, or if another process still holds the lock after `wait_s`.
    """
    with locked(path, wait_s=wait_s):
        with SqliteJournal.read_only(path) as file:
            cluster, closed = file.cluster(), file.closed((), since=0.0)
            leases = {_field(lease): lease for lease in file.leases()}
        reserve = Reserve(path)
        # What was reverted earlier, since the file could not record it.
        reverted = {_field(lease): lease for lease in reserve.leases() if _is_among(leases, lease)}
        journal = MemoryJournal(
            leases=[lease for lease in {**leases, **reverted}.values() if lease.ending is None],
            closed=[*closed, *(lease for lease in reverted.values() if lease.ending is not None)],
        )
        if cluster is not None:
            journal.claim(cluster)
        try:
            yield journal
        finally:
            ended = [lease for lease in journal.closed((), since=0.0) if lease.ending in _REVERTED]
            returning = [lease for lease in journal.leases() if lease.state is LeaseState.RETURNING]
            reserve.keep([lease for lease in (*ended, *returning) if _is_among(leases, lease)])


def _field(lease: Lease) -> tuple[int, Lever]:
    return lease.job_id, lease.lever


def _is_among(leases: Mapping[tuple[int, Lever], Lease], lease: Lease) -> bool:
    """Return whether a lease of the reserve is one of the open leases of the file, only later."""
    held = leases.get(_field(lease))
    return held is not None and (held.action, held.applied_time) == (lease.action, lease.applied_time)
