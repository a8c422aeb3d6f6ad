"""Spell out the names behind the codes of a trace."""

from advisor.sim.traces.trace import Trace
from advisor.sim.traces.trace_columns import NAMES_FIELD


def names_of(trace: Trace, column: str) -> list[str | None]:
    """Return the name in a column of every job; None for the code -1."""
    table = getattr(trace, NAMES_FIELD[column])
    return [table[code] if code >= 0 else None for code in trace.jobs[column].tolist()]
