"""Gives the facts of the cluster graph from a snapshot, the same as from the simulator's arrays.

Slurm shows the servers of a running gang and its GPUs in all, which are spread over the servers here.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from advisor.domain.gang import GpuScope
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import NodeTable, rows_of
from advisor.features.observe.graph import Residents, Rows, Servers

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
    residents = Residents(
        gang=np.arange(len(jobs)).repeat(nodes),
        server=np.array([row for rows in places for row in rows], np.intp),
        held=np.zeros(int(nodes.sum()), np.intp),
        gpus=np.array([_gpus(job) for job in jobs], np.intp),
        nodes=nodes,
        model=model_rows([job.hints.model or "" for job in jobs]),
        left_s=np.array([left_s_of(job) for job in jobs], np.float64),
    )
    return replace(residents, held=_held(residents, jobs, servers_of_table(table)))


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


def _held(of: Residents, jobs: Sequence[Job], servers: Servers) -> Rows:
    """Return the GPUs of each part, `(n_parts,)`, of gangs whose jobs are given.

    Gangs on one server are certain, as are those that take the same number on every server and exclusive ones. Any
    other takes what is in use on its servers beside the certain ones.
    """
    is_alike = np.array([job.gang.scope is GpuScope.NODE for job in jobs], np.bool_)
    is_exclusive = np.array([job.gang.exclusive for job in jobs], np.bool_)
    is_certain = (of.nodes == 1) | is_exclusive | (is_alike & (of.gpus % of.nodes == 0))
    alike = (of.gpus // of.nodes)[of.gang]
    most = servers.gpus[of.server]
    held = np.minimum(np.where(is_exclusive[of.gang], most, alike), most)
    is_sure = is_certain[of.gang]
    taken = np.bincount(of.server[is_sure], held[is_sure], minlength=len(servers)).astype(np.intp)
    in_use = (servers.gpus - servers.free - taken).tolist()
    first = np.searchsorted(of.gang, np.arange(len(of.gpus)))
    for row in np.flatnonzero(~is_certain).tolist():
        parts = slice(int(first[row]), int(first[row] + of.nodes[row]))
        shared = shared_out(of.server[parts].tolist(), int(of.gpus[row]), in_use)
        held[parts] = np.minimum(shared, most[parts])
        for server, gpus in zip(of.server[parts].tolist(), held[parts].tolist(), strict=True):
            in_use[server] -= gpus
    return held.astype(np.intp)


def shared_out(places: Sequence[int], count: int, in_use: Sequence[int]) -> list[int]:
    """Return the GPUs of a gang on its places: what is in use there, one at least, and the rest on the first."""
    left, held = count, []
    for rank, place in enumerate(places):
        owed = len(places) - rank - 1
        held.append(max(min(1, left), min(in_use[place], left - owed)))
        left -= held[-1]
    if held and left > 0:
        held[0] += left
    return held
