"""Keeps the journal: which changes were made and why, durably, to be reverted, audited and replayed."""

from advisor.journal.file import locked
from advisor.journal.schema import SCHEMA_VERSION
from advisor.journal.store import SqliteJournal, opened, opened_full

__all__ = ["SCHEMA_VERSION", "SqliteJournal", "locked", "opened", "opened_full"]
