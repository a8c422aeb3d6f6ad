"""The journal in the hands of the daemon: held for each round only, opened again where it failed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from advisor.clock import Clock
from advisor.domain.lease import Lease
from advisor.journal import SqliteJournal, locked
from advisor.settings import JournalSettings

# How long a round waits for a person's `sadvise apply` or `revert` to be done with the journal.
LOCK_WAIT_S: Final = 5.0


class Keeper:
    """A journal that is looked at as a whole when it is first opened, and again after it failed."""

    def __init__(self, settings: JournalSettings, clock: Clock) -> None:
        """Take the settings of the journal, whose file need not be there yet."""
        self._path = Path(settings.file)
        self._settings = settings
        self._clock = clock
        self._journal: SqliteJournal | None = None
        self._is_new = True
        # As last read, so that these jobs are left alone while the journal cannot be read.
        self.leases: tuple[Lease, ...] = ()

    @contextmanager
    def held(self) -> Iterator[SqliteJournal]:
        """Hold the journal and its lock; raises `JournalError`. The file is closed after whatever the block raises."""
        with locked(self._path, wait_s=LOCK_WAIT_S):
            if self._journal is None:
                # Every page is looked at once; after a fault that came up later a quick look has to do.
                self._journal = SqliteJournal(
                    self._path, thorough=self._is_new, retention=self._settings, clock=self._clock
                )
                self._is_new = False
            try:
                yield self._journal
            except BaseException:
                # Whatever went wrong, what comes next starts from the file, not from what is half done here.
                self.close()
                raise
            self.leases = self._journal.leases()

    def close(self) -> None:
        """Close the file until it is held again."""
        if self._journal is not None:
            self._journal.close_file()
            self._journal = None
