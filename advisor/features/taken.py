"""Counts the GPUs that jobs take: those that no other job can have while they run.

A job on whole nodes takes all GPUs of its nodes. Any other job takes the largest of its shares of the GPUs, the CPUs
and the memory of its nodes, times their GPUs, as Slurm bills with PriorityFlags=MAX_TRES. Where nodes differ, the mean
of those that a job can start on counts. CPUs and memory that are not known count nothing.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.features.columns import Columns

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# A share of CPUs or memory that equals that of the GPUs must not exceed it by the rounding of a quotient.
_DECIMALS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRates(Columns):
    """The whole GPUs that sets of nodes have for each node, CPU and MiB of memory; all `(n_sets,)`.

    A rate is 0 where there is nothing to divide by; `most_per_node` are the GPUs of the largest node.
    """

    per_node: Floats
    most_per_node: Floats
    per_cpu: Floats
    per_mib: Floats

    @classmethod
    def of(cls, member: Flags, gpus: Floats, cpus: Floats, memory_mib: Floats) -> "GpuRates":
        """Return the rates of sets of nodes, `member` `(n_sets, n_nodes)`, from what each node has, `(n_nodes,)`."""
        weight = (member & (gpus > 0.0)).astype(np.float64)
        total = weight @ gpus
        return cls(
            per_node=_ratio(total, weight.sum(axis=1)),
            most_per_node=(weight * gpus).max(axis=1, initial=0.0),
            per_cpu=_ratio(total, weight @ cpus),
            per_mib=_ratio(total, weight @ memory_mib),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedResources:
    """The resources that jobs ask for, all `(n_jobs,)`: `gpus` as whole ones, `memory_mib` of each node, 0 for unknown.

    `nodes` are the fewest nodes, `whole` is whether no other user can have the rest of them.
    """

    gpus: Floats
    nodes: Floats
    cpus: Floats
    memory_mib: Floats
    whole: Flags


def gpus_taken(asked: AskedResources, rates: GpuRates) -> Floats:
    """Return the GPUs that jobs take, `(n_jobs,)`; `rates` are those of the nodes that each can start on."""
    nodes = np.maximum(asked.nodes, np.ceil(_ratio(asked.gpus, rates.most_per_node)))
    by_cpus = np.round(asked.cpus * rates.per_cpu, _DECIMALS)
    by_memory = np.round(asked.memory_mib * nodes * rates.per_mib, _DECIMALS)
    whole = np.where(asked.whole, nodes * rates.per_node, 0.0)
    return np.asarray(np.maximum.reduce([asked.gpus, by_cpus, by_memory, whole]))


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Return quotients, 0 where there is nothing to divide by."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0.0)
