"""Opens the journal for the daemon: locked during each round only, and opened again after a fault."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from advisor.apply.memory_journal import MemoryJournal
from advisor.clock import Clock
from advisor.domain.lease import Lease
from advisor.journal import SqliteJournal, locked, opened_full
from advisor.settings import JournalSettings

# How long a round waits for `sadvise apply` or `sadvise revert` to release the journal.
LOCK_WAIT_S: Final = 5.0


class Keeper:
    """A journal that is checked page by page when it is first opened, and reopened after a fault."""

    def __init__(self, settings: JournalSettings, clock: Clock) -> None:
        """Take the settings of the journal, whose file need not be there yet."""
        self._path = Path(settings.file)
        self._settings = settings
        self._clock = clock
        self._journal: SqliteJournal | None = None
        self._is_new = True
        # The jobs as last read, which are left alone while the journal cannot be read.
        self.leases: tuple[Lease, ...] = ()

    @contextmanager
    def held(self) -> Iterator[SqliteJournal]:
        """Hold the journal and its lock; raises `JournalError`. The file is closed after whatever the block raises."""
        with locked(self._path, wait_s=LOCK_WAIT_S):
            if self._journal is None:
                # Every page is checked at the first opening only; after a later fault the quick check is used.
                self._journal = SqliteJournal(
                    self._path, thorough=self._is_new, retention=self._settings, clock=self._clock
                )
                self._is_new = False
            try:
                self._journal.settle()
                yield self._journal
            except BaseException:
                # After any fault the next use starts from the file, not from a half-finished state in memory.
                self.close()
                raise
            self.leases = self._journal.leases()

    @contextmanager
    def held_full(self) -> Iterator[MemoryJournal]:
        """Hold a journal that cannot grow, to revert changes; raises `JournalError`."""
        self.close()
        with opened_full(self._path, wait_s=LOCK_WAIT_S) as journal:
            self.leases = journal.leases()
            yield journal
            self.leases = journal.leases()

    def close(self) -> None:
        """Close the file; `held` opens it again."""
        if self._journal is not None:
            self._journal.close_file()
            self._journal = None
