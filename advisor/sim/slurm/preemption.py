"""Which running jobs give way to which jobs of the line: by the tiers of their partitions, or by their QOS."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.sim.cluster import Cluster
from advisor.sim.slurm.queue_tables import PreemptMode, QosTable
from advisor.sim.slurm.slurm_queue import Entries, partitions_of
from advisor.sim.slurm.slurm_state import GROUP_DTYPE
from advisor.sim.traces.trace import Trace

# As numbered in preemption.c.
_MODES: Final[Mapping[PreemptMode, int]] = {"off": 0, "requeue": 1, "cancel": 2}


class Preemption(NamedTuple):
    """The tables of preemption, named as in `Slurm`; all are empty where no job is ever preempted."""

    groups: NDArray[np.void]
    preempts: NDArray[np.int8]
    group: NDArray[np.int32]
    preempt_time: NDArray[np.float64]
    grace_end_time: NDArray[np.float64]
    candidates: NDArray[np.int32]
    leaving: NDArray[np.int32]


def build_preemption(trace: Trace, cluster: Cluster, entries: Entries, most_running: int) -> Preemption:
    """Build the tables of preemption for the entries of a trace."""
    if cluster.slurm.preempt_type == "partition_prio":
        groups, preempts = _of_partitions(cluster)
        group = np.concatenate([entries.partition, entries.extras["partition"]])
    else:
        groups, preempts = _of_qos(cluster, trace.qos)
        group = trace.jobs["qos"][np.concatenate([np.arange(len(trace)), entries.extras["row"]])]
    groups["preempts_any"] = (preempts & (groups["mode"] > 0)).any(axis=1)
    is_on = cluster.slurm.preempt_type != "none" and cluster.slurm.preempt_mode != "off"
    if not (is_on and preempts.any()):
        groups, preempts, group, most_running = groups[:0], preempts[:0, :0], group[:0], 0
    count = len(trace) if len(groups) else 0
    return Preemption(
        groups=groups,
        preempts=np.ascontiguousarray(preempts, np.int8),
        group=group.astype(np.int32),
        preempt_time=np.full(count, -np.inf),
        grace_end_time=np.full(count, np.inf),
        candidates=np.zeros(most_running, np.int32),
        leaving=np.zeros(most_running, np.int32),
    )


def _of_partitions(cluster: Cluster) -> tuple[NDArray[np.void], NDArray[np.int8]]:
    """Return the partitions as groups: those of a higher tier preempt those of a lower one."""
    asked, tables = cluster.slurm, partitions_of(cluster)
    groups = np.zeros(len(tables), GROUP_DTYPE)
    groups["order"] = [table.priority_tier for table in tables]
    groups["mode"] = [_MODES[table.preempt_mode or asked.preempt_mode] for table in tables]
    groups["grace_s"] = [table.grace_s for table in tables]
    groups["exempt_s"] = asked.preempt_exempt_s
    return groups, (groups["order"][:, None] > groups["order"]).astype(np.int8)


def _of_qos(cluster: Cluster, names: Sequence[str]) -> tuple[NDArray[np.void], NDArray[np.int8]]:
    """Return the QOS of a trace as groups: each preempts those that it lists."""
    asked, table_by_name = cluster.slurm, {table.name: table for table in cluster.qos}
    tables = [table_by_name.get(name, QosTable(name="-")) for name in names]
    groups = np.zeros(len(tables), GROUP_DTYPE)
    groups["order"] = [table.priority for table in tables]
    groups["mode"] = [_MODES[table.preempt_mode or asked.preempt_mode] for table in tables]
    groups["grace_s"] = [table.grace_s for table in tables]
    groups["exempt_s"] = [
        asked.preempt_exempt_s if table.preempt_exempt_s is None else table.preempt_exempt_s for table in tables
    ]
    return groups, np.array([[name in table.preempts for name in names] for table in tables], np.int8)
