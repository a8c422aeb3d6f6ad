"""What the parts of the journal share: the open file, whole changes, and the audit that goes with them."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from advisor.clock import Clock
from advisor.journal import audit
from advisor.journal.audit import AuditRow, Detail, Verified
from advisor.journal.file import at_once, said_plainly
from advisor.settings import JournalSettings


class JournalBase:
    """An open file and its audit."""

    def __init__(self, path: Path, database: sqlite3.Connection, *, retention: JournalSettings, clock: Clock) -> None:
        self._path = path
        self._database = database
        self._retention = retention
        self._clock = clock

    @property
    def path(self) -> Path:
        """Where the file stands."""
        return self._path

    def __enter__(self) -> Self:
        """Use the journal until the block ends."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the file."""
        self.close_file()

    def close_file(self) -> None:
        """Close the file; the journal is of no use then."""
        self._database.close()

    def note(self, time: float, event: str, detail: Mapping[str, Detail]) -> None:
        """Write into the audit what the daemon did: its start, a pause, a breaker, and the like."""
        with self._writing():
            audit.append(self._database, time, event, detail)

    def audit(self, since: float = 0.0, most: int = 50) -> tuple[AuditRow, ...]:
        """Return the rows of the audit written after an instant, newest first."""
        with self._reading():
            return tuple(audit.rows(self._database, since, most))

    def last(self, event: str) -> AuditRow | None:
        """Return the newest row of the audit about an event; None where there is none."""
        with self._reading():
            return audit.last(self._database, event)

    def verify(self) -> Verified:
        """Walk the chain of the audit."""
        with self._reading():
            return audit.verify(self._database)

    def _audit(self, event: str, detail: Mapping[str, Detail]) -> None:
        """Write into the audit what the open transaction does."""
        audit.append(self._database, self._clock.now(), event, detail)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write all of a block or none of it, and say in one line what was against it."""
        with said_plainly(self._path), at_once(self._database):
            yield

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with said_plainly(self._path):
            yield
