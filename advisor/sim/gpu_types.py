"""Compares the GPU types that the jobs of a trace ask for with those of the cluster."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from advisor.errors import SimulationError
from advisor.sim.cluster import ANY_TYPE, Cluster
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
