"""Defines what the parts of the journal share: the open file, transactions, and the audit."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from advisor.clock import Clock
from advisor.domain.probation import Trust
from advisor.journal import audit
from advisor.journal.audit import AuditRow, Detail, Verified
from advisor.journal.file import faults_translated, transaction
from advisor.settings import JournalSettings

# The event of a change of the circuit breakers; the newest one says which are open.
BREAKERS: Final = "breakers"
# The event by which a model has proven itself on jobs of this site, or a person trusts it again. Up to 2026 it was
# "forecast proven", by intervals alone, which proves no order.
PROVEN: Final = "run times proven"
# The event of a look at how a model orders jobs.
ORDER_SEEN: Final = "run times in order"
# What the weekly `sadvise tune` advised.
TUNED: Final = "tuned"
# Where the daemon can move by itself, as that found; and that it did, or that this was taken back.
CANDIDATE: Final = "settings to move to"
SETTINGS: Final = "settings"
# Which nodes fail more often than chance makes, as accounting had them that night.
FAILING: Final = "failing nodes"
# The running jobs that held idle GPUs, once an hour while there are any.
IDLE: Final = "idle GPUs"
# The gangs that starved and the GPUs that idled as small jobs were scattered, once an hour while there are any.
GANGS: Final = "gangs"
# The event by which the intervals of a model no longer hold.
DRIFTED: Final = "forecast drifted"


class JournalBase:
    """An open file and its audit."""

    def __init__(self, path: Path, database: sqlite3.Connection, *, retention: JournalSettings, clock: Clock) -> None:
        self._path = path
        self._database = database
        self._retention = retention
        self._clock = clock
        # The models that were proven or drifted, as of a row of the audit; None where it was not asked yet.
        self._trust: tuple[Trust, int] | None = None

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._path

    def __enter__(self) -> Self:
        """Return the journal, for use in a block."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the file."""
        self.close_file()

    def close_file(self) -> None:
        """Close the file; the journal cannot be used afterwards."""
        self._database.close()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run a block in one transaction: what it writes is stored all together, or nothing of it."""
        with self._writing():
            yield

    def note(self, time: float, event: str, detail: Mapping[str, Detail]) -> None:
        """Write an event of the daemon into the audit, such as its start, a pause or a breaker."""
        with self._writing():
            audit.append(self._database, time, event, detail)

    def audit(self, since: float = 0.0, most: int = 50) -> tuple[AuditRow, ...]:
        """Return the rows of the audit written after an instant, newest first."""
        with self._reading():
            return tuple(audit.rows(self._database, since, most))

    def last(self, event: str) -> AuditRow | None:
        """Return the newest row of the audit about an event; None if there is none."""
        with self._reading():
            return audit.last(self._database, event)

    def audit_after(self, number: int) -> tuple[AuditRow, ...]:
        """Return the rows of the audit after one, oldest first."""
        with self._reading():
            return tuple(audit.rows_after(self._database, number))

    def newest_row(self) -> int:
        """Return the number of the newest row of the audit; 0 if there is none."""
        with self._reading():
            return audit.newest(self._database)

    def trust(self) -> Trust:
        """Return the model that jobs of this site have proven, and that which drifted, by the newest rows about them.

        Other programs add rows too, so that those since the last call are looked through.
        """
        if self._trust is None:
            number = self.newest_row()
            trust = _trust_by(self.last(PROVEN), self.last(DRIFTED))
        else:
            trust, number = self._trust
            newer = self.audit_after(number)
            number = newer[-1].number if newer else number
            if any(row.event in (PROVEN, DRIFTED) for row in newer):
                trust = _trust_by(self.last(PROVEN), self.last(DRIFTED))
        self._trust = trust, number
        return trust

    def verify(self) -> Verified:
        """Check the chain of the audit."""
        with self._reading():
            return audit.verify(self._database)

    def _audit(self, event: str, detail: Mapping[str, Detail]) -> None:
        """Write a row into the audit, in the open transaction."""
        audit.append(self._database, self._clock.now(), event, detail)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Run a block in one transaction, or in that of `together`; a fault is raised as `JournalError`."""
        if self._database.in_transaction:
            yield
            return
        with faults_translated(self._path), transaction(self._database):
            yield

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with faults_translated(self._path):
            yield


def _trust_by(proven: AuditRow | None, drifted: AuditRow | None) -> Trust:
    """Return what two rows say; of two about one model the later one counts."""
    proven_model, proven_since = _model_since(proven)
    drifted_model, drifted_since = _model_since(drifted)
    if proven_model == drifted_model:
        drifted_is_later = drifted_since > proven_since
        proven_model, drifted_model = ("", drifted_model) if drifted_is_later else (proven_model, "")
    return Trust(
        proven=frozenset((proven_model,)) - {""},
        drifted=frozenset((drifted_model,)) - {""},
        since_by_model={
            model: since for model, since in ((proven_model, proven_since), (drifted_model, drifted_since)) if model
        },
    )


def _model_since(row: AuditRow | None) -> tuple[str, float]:
    """Return the model of a row and since when it holds; a row that outlived the retention is newer than that."""
    return ("", 0.0) if row is None else (str(row.detail.get("model", "")), float(row.detail.get("since", row.time)))
