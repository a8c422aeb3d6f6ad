"""The journal: what was changed and why, kept through kills, so that it can be taken back, audited and replayed."""

from advisor.journal.lock import locked
from advisor.journal.schema import SCHEMA_VERSION
from advisor.journal.store import SqliteJournal, opened

__all__ = ["SCHEMA_VERSION", "SqliteJournal", "locked", "opened"]
