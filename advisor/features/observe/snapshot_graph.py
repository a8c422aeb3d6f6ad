"""Gives the facts of the cluster graph from a snapshot, the same as from the simulator's arrays."""

from collections.abc import Callable, Sequence

import numpy as np

from advisor.domain.gang import GpuScope
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import NodeTable, rows_of
from advisor.features.observe.graph import Residents, Rows, Servers
from advisor.features.observe.holdings import HeldParts

# From names of models to rows of the table of neighbours.
RowsOf = Callable[[Sequence[str]], Rows]
# From a running job to its remaining run time in seconds, NaN where that is not known.
LeftOf = Callable[[Job], float]


def servers_of_table(table: NodeTable) -> Servers:
    """Return the servers of a node table; nodes that no leaf switch holds count as one leaf."""
    return Servers(
        gpus=table.gpus_total.sum(axis=1).astype(np.intp),
        free=table.gpus_idle.sum(axis=1).astype(np.intp),
        is_up=table.usable,
        leaf=np.unique(table.leaf, return_inverse=True)[1].astype(np.intp),
    )


def residents_of_jobs(snapshot: Snapshot, table: NodeTable, model_rows: RowsOf, left_s_of: LeftOf) -> Residents:
    """Return the gangs that hold GPUs, in the order of their ids."""
    jobs = jobs_with_gpus(snapshot, table)
    places = [sorted(rows_of(table, job.allocation.nodes)) if job.allocation else [] for job in jobs]
    nodes = np.array([len(rows) for rows in places], np.intp)
    holdings = HeldParts(
        gang=np.arange(len(jobs)).repeat(nodes),
        server=np.array([row for rows in places for row in rows], np.intp),
        gpus=np.array([_gpus(job) for job in jobs], np.intp),
        nodes=nodes,
        is_alike=np.array([job.gang.scope is GpuScope.NODE for job in jobs], np.bool_),
        is_exclusive=np.array([job.gang.exclusive for job in jobs], np.bool_),
    )
    model = model_rows([job.hints.model or "" for job in jobs])
    left_s = np.array([left_s_of(job) for job in jobs], np.float64)
    return holdings.residents(servers_of_table(table), model, left_s)


def jobs_with_gpus(snapshot: Snapshot, table: NodeTable) -> list[Job]:
    """Return the jobs that hold GPUs of nodes in a table, in the order of the gangs of `residents_of_jobs`."""
    return [
        job
        for job in snapshot.jobs
        if job.allocation is not None
        and not job.is_pending
        and _gpus(job)
        and len(rows_of(table, job.allocation.nodes))
    ]


def _gpus(job: Job) -> int:
    return sum(gpus.count for gpus in job.allocation.gpus) if job.allocation is not None else 0
