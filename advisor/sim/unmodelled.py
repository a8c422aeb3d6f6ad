"""Finds what a trace says of its jobs and a simulation leaves out."""

from typing import Final

import numpy as np

from advisor.sim.cluster import Cluster
from advisor.sim.traces.eligibility import held_back
from advisor.sim.traces.trace import Trace
from advisor.text import named

_MOST_SHOWN: Final = 8
_LONGEST_NAME: Final = 40


def unmodelled(trace: Trace, cluster: Cluster) -> str:
    """Return a note on what the simulation of a trace on a cluster leaves out, empty if that is nothing."""
    parts = [part for part in (_partitions(trace, cluster), _held_back(trace), *_unnamed(trace, cluster)) if part]
    return f"{trace.name}: {'; '.join(parts)}" if parts else ""


def _partitions(trace: Trace, cluster: Cluster) -> str:
    used = [text for text in _names(trace.partitions, trace, "partition") if text]
    if not cluster.partitions:
        shared = f"the cluster file has no partitions: jobs of {_listed(used)} share all nodes and limits"
        return shared if len(used) > 1 else ""
    known = {table.name for table in cluster.partitions}
    odd = [name for name in dict.fromkeys(name for text in used for name in text.split(",")) if name not in known]
    return f"the cluster file has no partition {_listed(odd)}: what jobs say of it does not count" if odd else ""


def _listed(names: list[str]) -> str:
    """Return the first of many names."""
    shown = ", ".join(named(name, longest=_LONGEST_NAME) for name in names[:_MOST_SHOWN])
    return shown + (f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else "")


def _held_back(trace: Trace) -> str:
    count = int(np.count_nonzero(held_back(trace)))
    if not count:
        return ""
    return (
        f"policies other than Slurm's ignore dependencies, begin times and limits of arrays: under them {count} of"
        f" {len(trace)} jobs enter the queue at their submit_time"
    )


def _unnamed(trace: Trace, cluster: Cluster) -> list[str]:
    """List what jobs name and the cluster file does not have at all, so that it does not count."""
    asked = {
        "features": (trace.features, "features", any(group.features for group in cluster.nodes)),
        "required_nodes": (trace.required_nodes, "names of nodes", cluster.names_nodes),
        "excluded_nodes": (trace.excluded_nodes, "names of nodes", cluster.names_nodes),
        "reservation": (trace.reservations, "reservations", bool(cluster.reservations)),
    }
    notes = []
    for column, (table, wanted, is_named) in asked.items():
        count = int(np.count_nonzero(np.array([bool(text) for text in table])[trace.jobs[column]]))
        if count and not is_named:
            notes.append(f"the cluster has no {wanted}: {column} of {count} of {len(trace)} jobs does not count")
    return notes


def _names(table: tuple[str, ...], trace: Trace, column: str) -> list[str]:
    """Return the names in use in a column."""
    return [table[code] for code in np.unique(trace.jobs[column]).tolist()]
