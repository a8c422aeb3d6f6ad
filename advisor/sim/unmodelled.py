"""Finds what a trace says of its jobs and a simulation leaves out, and GPU types that the cluster lacks."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from advisor.errors import SimulationError
from advisor.sim.cluster import ANY_TYPE, Cluster
from advisor.sim.traces.eligibility import held_back
from advisor.sim.traces.trace import Trace
from advisor.text import named

_MOST_SHOWN: Final = 8
_LONGEST_NAME: Final = 40


def jobs_by_gpu_type(trace: Trace) -> Mapping[str, int]:
    """Count the jobs that ask for each GPU type, the most frequent type first; jobs of any type are left out."""
    codes = trace.jobs["gpu_type"]
    counts = np.bincount(codes[codes >= 0], minlength=len(trace.gpu_types)).tolist()
    used = [(name, count) for name, count in zip(trace.gpu_types, counts, strict=True) if count]
    return dict(sorted(used, key=lambda item: (-item[1], item[0])))


def check_gpu_types(trace: Trace, cluster: Cluster, cluster_text: str) -> str:
    """Return a warning about jobs whose GPU type the cluster lacks, empty if there are none.

    Raises `SimulationError` if the trace names several types and the cluster none, because the jobs would then run on
    each other's GPUs. A cluster that declares its GPUs to be of any type accepts all.
    """
    jobs = jobs_by_gpu_type(trace)
    if cluster.merges_types:
        return ""
    if cluster.gpu_types != ("",):
        missing = {name: count for name, count in jobs.items() if name not in cluster.gpu_types}
        if not missing:
            return ""
        share = f"{sum(missing.values())} of {len(trace)} jobs"
        return f"{trace.name}: {share} can never run: {cluster_text} has no GPUs of their type ({_in_words(missing)})"
    if len(jobs) > 1:
        example = named(next(iter(jobs)), longest=_LONGEST_NAME)
        raise SimulationError(
            f"{trace.name}: its jobs ask for {len(jobs)} GPU types ({_in_words(jobs)}), but --cluster {cluster_text} "
            f"names none: give each group of nodes its gpu_type in a cluster file, or the type in the short form "
            f"(type={example}); type={ANY_TYPE} merges the types on purpose"
        )
    return ""


def _in_words(jobs: Mapping[str, int]) -> str:
    shown = [f"{named(name, longest=_LONGEST_NAME)}: {count}" for name, count in list(jobs.items())[:_MOST_SHOWN]]
    more = len(jobs) - len(shown)
    return ", ".join([*shown, f"and {more} more types"] if more else shown)


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
