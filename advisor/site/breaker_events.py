"""Reads and writes the circuit breakers in the audit, where commands see them and people acknowledge them."""

from functools import cache
from typing import Final

from pydantic import TypeAdapter, ValidationError

from advisor.guard.breakers import ALL_CLOSED, BreakerState, acknowledged
from advisor.journal import SqliteJournal
from advisor.journal.base import BREAKERS, PROVEN
from advisor.settings import BreakerSettings
from advisor.view.breaker_words import breaker_lines

ACKNOWLEDGED: Final = "acknowledged"


def write_breakers(journal: SqliteJournal, state: BreakerState, settings: BreakerSettings, now: float) -> None:
    """Write the breakers into the audit; raises `JournalError`."""
    content = _states().dump_json(state).decode()
    journal.note(now, BREAKERS, {**breaker_lines(state, settings), "state": content})


def read_breakers(journal: SqliteJournal) -> tuple[BreakerState, int]:
    """Return the breakers of the last daemon, without those acknowledged since, and the number of the last row read.

    A state that cannot be read counts as none open.
    """
    row = journal.last(BREAKERS)
    if row is None:
        return ALL_CLOSED, journal.newest_row()
    try:
        state = _states().validate_json(str(row.detail.get("state", "")), strict=True)
    except ValidationError:
        state = ALL_CLOSED
    return acknowledged_since(journal, state, row.number)


def acknowledged_since(journal: SqliteJournal, state: BreakerState, number: int) -> tuple[BreakerState, int]:
    """Return the breakers after what people acknowledged in the rows after one, and the number of the last row."""
    for row in journal.audit_after(number):
        if row.event == ACKNOWLEDGED:
            state = acknowledged(state, str(row.detail.get("breaker", "")), row.time)
        number = row.number
    return state, number


def acknowledge(journal: SqliteJournal, name: str, now: float, *, by: str, reason: str) -> None:
    """Write into the audit that a person acknowledged a breaker; raises `JournalError`."""
    journal.note(now, ACKNOWLEDGED, {"breaker": name, "by": by, **({"reason": reason} if reason else {})})


def trust_again(journal: SqliteJournal, now: float, *, by: str, reason: str) -> None:
    """Write into the audit that a person trusts a run-time model again that drifted; raises `JournalError`."""
    trust = journal.trust()
    for model in trust.drifted:
        since = max(now, trust.since(model))
        who = {"by": by, **({"reason": reason} if reason else {})}
        journal.note(now, PROVEN, {"model": model, "since": since, **who})


@cache
def _states() -> TypeAdapter[BreakerState]:
    return TypeAdapter(BreakerState)
