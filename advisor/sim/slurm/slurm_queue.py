"""The partitions of the model of slurmctld, and the entries of jobs in its line: one for each partition of a job."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster, names_in
from advisor.sim.slurm.queue_tables import ALL_NODES, PartitionTable
from advisor.sim.slurm.slurm_settings import PriorityFlag
from advisor.sim.state import NONE, State
from advisor.sim.traces.trace import Trace

# The partition of a cluster that declares none.
ONLY_PARTITION: Final = PartitionTable(name="gpu", default=True)

PARTITION_DTYPE = np.dtype(
    [
        ("factor", np.float64),
        ("gpus", np.float64),  # in all its nodes
        ("cpus", np.float64),
        ("memory_mib", np.float64),
        ("tested", np.int64),  # jobs that the present pass tested in it
        ("reservations", np.int64),  # that the present pass of backfill made in it
        ("tier", np.int32),
        ("is_blocked", np.int8),  # for the rest of the present main pass
    ],
    align=True,
)

ENTRY_DTYPE = np.dtype([("priority", np.float64), ("row", np.int32), ("partition", np.int32)], align=True)


class Entries(NamedTuple):
    """The partitions that jobs can start in: the first of each job, and records for those of several."""

    partition: NDArray[np.int32]  # (n_jobs,)
    others: NDArray[np.int32]  # (n_jobs,): the first record of a job among the extras, -1: none
    extras: NDArray[np.void]  # (n_extras,): of `ENTRY_DTYPE`, those of a job in a row


def partitions_of(cluster: Cluster) -> tuple[PartitionTable, ...]:
    """Return the partitions of a cluster: those that it declares, else one with all nodes."""
    return cluster.partitions or (ONLY_PARTITION,)


def members_of(cluster: Cluster) -> NDArray[np.int8]:
    """Return which nodes the partitions have, `(n_partitions, n_nodes)`; raise `SimulationError` for unknown names."""
    names = cluster.node_names
    row_by_name = {name: row for row, name in enumerate(names)}
    tables = partitions_of(cluster)
    members = np.zeros((len(tables), len(names)), np.int8)
    for place, table in enumerate(tables):
        if table.nodes.upper() == ALL_NODES:
            members[place] = 1
            continue
        try:
            listed = names_in(table.nodes)
        except SimulationError as err:
            raise SimulationError(f"partitions.nodes of {table.name}: {err}") from err
        if odd := next((name for name in listed if name not in row_by_name), ""):
            raise SimulationError(
                f"partitions.nodes of {table.name}: there is no node {odd}: nodes are {names[0]} to {names[-1]}"
            )
        members[place, [row_by_name[name] for name in listed]] = 1
    return members


def partition_records(state: State, cluster: Cluster, members: NDArray[np.int8]) -> NDArray[np.void]:
    """Build the records of the partitions, `(n_partitions,)`."""
    tables = partitions_of(cluster)
    records = np.zeros(len(tables), PARTITION_DTYPE)
    factors = np.array([float(table.priority_job_factor) for table in tables])
    raw = {PriorityFlag.NO_NORMAL_PART, PriorityFlag.NO_NORMAL_ALL} & set(cluster.slurm.priority_flags)
    records["factor"] = factors if raw else factors / max(1.0, factors.max())
    records["tier"] = [table.priority_tier for table in tables]
    for name in ("gpus", "cpus", "memory_mib"):
        records[name] = np.maximum(1.0, members @ state.nodes[name])
    return records


def asked_partitions(trace: Trace, cluster: Cluster) -> list[list[int]]:
    """Return the partitions that jobs ask for by the code of their column.

    Those that the cluster does not have do not count. Raises `SimulationError` for jobs without any, unless one is the
    default.
    """
    tables = partitions_of(cluster)
    if not cluster.partitions:
        return [[0] for _ in trace.partitions]
    place_by_name = {table.name: place for place, table in enumerate(tables)}
    default = next((place for place, table in enumerate(tables) if table.default), NONE)
    used = set(trace.jobs["partition"].tolist())
    asked: list[list[int]] = []
    for code, text in enumerate(trace.partitions):
        places = [place_by_name[name] for name in dict.fromkeys(text.split(",")) if name in place_by_name]
        if code in used and not places and default == NONE:
            raise SimulationError(
                f"partitions.default: jobs of the trace name none of {', '.join(place_by_name)}, and none is default"
            )
        asked.append(places or [max(default, 0)])
    return asked


def admits(table: PartitionTable, jobs: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which jobs a partition can ever start, as far as its own limits go, `(n_jobs,)`.

    As with EnforcePartLimits=NO, others pend and hold up no job. A job without a time limit gets the partition's.
    """
    fits = np.full(len(jobs), table.state == "up")
    if table.max_nodes is not None:
        fits &= jobs["nodes_min"] <= table.max_nodes
    if table.max_time_s is not None:
        fits &= (jobs["limit_s"] <= table.max_time_s) | np.isinf(jobs["limit_s"])
    return fits


def entries_of(rows: Sequence[int] | NDArray[np.intp], partitions: NDArray[np.intp], n_jobs: int) -> Entries:
    """Build the entries of pairs of jobs and partitions, `(n_pairs,)`, sorted by job; without one, partition is 0."""
    rows = np.asarray(rows, np.intp)
    is_first = np.r_[True, rows[1:] != rows[:-1]] if len(rows) else np.zeros(0, np.bool_)
    partition = np.zeros(n_jobs, np.int32)
    partition[rows[is_first]] = partitions[is_first]
    extras = np.zeros(int((~is_first).sum()), ENTRY_DTYPE)
    extras["row"], extras["partition"] = rows[~is_first], partitions[~is_first]
    others = np.full(n_jobs, NONE, np.int32)
    with_others, first = np.unique(extras["row"], return_index=True)
    others[with_others] = first
    return Entries(partition=partition, others=others, extras=extras)
