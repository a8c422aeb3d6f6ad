"""The journal: what was changed and why, kept through kills, so that it can be taken back, audited and replayed."""

from advisor.journal.lock import locked
from advisor.journal.recorded_step import kept_revert, kept_step
from advisor.journal.schema import SCHEMA_VERSION
from advisor.journal.store import SqliteJournal, opened

__all__ = ["SCHEMA_VERSION", "SqliteJournal", "kept_revert", "kept_step", "locked", "opened"]
