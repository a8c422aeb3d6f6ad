"""Finds what a trace says of its jobs and the simulator does not model: partitions and dependencies."""

from typing import Final

import numpy as np

from advisor.sim.trace import Trace
from advisor.text import named

_MOST_SHOWN: Final = 8
_LONGEST_NAME: Final = 40


def unmodelled(trace: Trace) -> str:
    """Return a note on what the simulation of a trace leaves out, empty if that is nothing."""
    parts = [part for part in (_partitions(trace), _dependencies(trace)) if part]
    return f"{trace.name}: {'; '.join(parts)}" if parts else ""


def _partitions(trace: Trace) -> str:
    names = [name for name in _names(trace.partitions, trace, "partition") if name]
    if len(names) < 2:
        return ""
    shown = ", ".join(named(name, longest=_LONGEST_NAME) for name in names[:_MOST_SHOWN])
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return f"the model has one partition: jobs of {shown}{more} share all nodes and limits"


def _dependencies(trace: Trace) -> str:
    depends = np.array([bool(text) for text in trace.dependencies], dtype=np.bool_)
    count = int(np.count_nonzero(depends[trace.jobs["dependency"]]))
    if not count:
        return ""
    return (
        f"the model has no dependencies: {count} of {len(trace)} jobs have one and enter the queue at their submit_time"
    )


def _names(table: tuple[str, ...], trace: Trace, column: str) -> list[str]:
    """Return the names in use in a column."""
    return [table[code] for code in np.unique(trace.jobs[column]).tolist()]
