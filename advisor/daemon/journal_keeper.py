"""Opens the journal for the daemon: locked during each round only, and opened again after a fault."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from advisor.apply.memory_journal import MemoryJournal
from advisor.clock import Clock
from advisor.domain.lease import Lease
from advisor.errors import JournalError
from advisor.journal import SqliteJournal, locked, opened_full
from advisor.journal.file import JournalFiles, files_of
from advisor.settings import JournalSettings

# How long a round waits for `sadvise apply` or `sadvise revert` to release the journal.
LOCK_WAIT_S: Final = 5.0
_WHAT_TO_DO: Final = (
    "while sadvised was using it, so nothing is sent: put the file back, or restart sadvised to go on with what is "
    "there, and see `sadvise check` for changes that it does not know"
)


class Keeper:
    """A journal that is checked page by page when it is first opened, and reopened after a fault.

    The journal has to be the one of the last round: the same files, with the nonce that the round left there. If
    another program wrote to it since, it also has to verify.
    """

    def __init__(self, settings: JournalSettings, clock: Clock) -> None:
        """Take the settings of the journal, whose file need not be there yet."""
        self._path = Path(settings.file)
        self._settings = settings
        self._clock = clock
        self._journal: SqliteJournal | None = None
        self._is_new = True
        # The files as the last round left them, and the nonces of which one is in the file; none before the first.
        self._files: JournalFiles | None = None
        self._nonces: tuple[str, ...] = ()
        # The open leases as last read; their jobs are left alone while the journal cannot be read.
        self.leases: tuple[Lease, ...] = ()

    @contextmanager
    def held(self) -> Iterator[SqliteJournal]:
        """Hold the journal and its lock; raises `JournalError`. The file is closed after whatever the block raises."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self._path, wait_s=LOCK_WAIT_S))
            except JournalError:
                # A file system that has failed can be unmounted, checked and mounted again.
                self.close()
                raise
            self._check_files()
            journal = self._journal = self._journal or self._opened()
            try:
                journal.settle()
                yield journal
                self._mark(journal)
            except BaseException:
                # After any fault the next use starts from the file, not from a half-finished state in memory.
                self.close()
                raise
            self.leases = journal.leases()

    @contextmanager
    def held_full(self) -> Iterator[MemoryJournal]:
        """Hold a journal that cannot grow, to revert changes; raises `JournalError`."""
        self._check_files()
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

    def _opened(self) -> SqliteJournal:
        # Every page is checked at the first opening only; after a later fault the quick check is used.
        journal = SqliteJournal(self._path, thorough=self._is_new, retention=self._settings, clock=self._clock)
        self._is_new = False
        self._files = self._seen()
        return journal

    def _check_files(self) -> None:
        """Raise `JournalError` if the journal at the path is not the one of the last round."""
        before, now = self._files, self._seen()
        if before is None or before.database is None or now == before:
            return
        if now.database is None:
            raise JournalError(f"{self._path}: was removed {_WHAT_TO_DO}")
        if not before.database.is_file(now.database):
            raise JournalError(f"{self._path}: was replaced by another file {_WHAT_TO_DO}")
        # The last program that closes the journal removes the log.
        if self._journal is not None and not before.is_same(now):
            raise JournalError(f"{self._path}-wal: was removed or replaced {_WHAT_TO_DO}")
        # Read from the files: the open journal can still hold what stood there before.
        with SqliteJournal.read_only(self._path) as journal:
            if self._nonces and journal.nonce() not in self._nonces:
                raise JournalError(f"{self._path}: was replaced by an earlier copy {_WHAT_TO_DO}")
            if not journal.verify().is_intact:
                raise JournalError(
                    f"{self._path}: was changed by another program (`sadvise journal verify`) {_WHAT_TO_DO}"
                )

    def _mark(self, journal: SqliteJournal) -> None:
        """Leave a new nonce in the file, and note the files as they then are, if they are still the same."""
        nonce = secrets.token_hex(8)
        # Which of both is in the file is not known if writing it fails.
        self._nonces = (*self._nonces[-1:], nonce)
        journal.set_nonce(nonce)
        self._nonces = (nonce,)
        now = self._seen()
        # Files that were removed or replaced in the middle of the round are those of the next round's check.
        if self._files is not None and self._files.is_same(now):
            self._files = now

    def _seen(self) -> JournalFiles:
        try:
            return files_of(self._path)
        except OSError as err:
            raise JournalError(f"{self._path}: cannot be looked at: {err.strerror}") from err
