"""Gives the facts of the cluster graph from a snapshot, the same as from the simulator's arrays.

Slurm shows the servers of a running gang and its GPUs in all, which are spread over the servers here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.domain.gang import GpuScope
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import NodeTable, rows_of
from advisor.features.observe.graph import Flags, Floats, Residents, Rows, Servers

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


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldParts:
    """What running gangs hold, as Slurm shows it; parts stand gang by gang, and in the order of servers."""

    gang: Rows  # (n_parts,): row of the gang
    server: Rows  # (n_parts,)
    gpus: Rows  # (n_gangs,)
    nodes: Rows  # (n_gangs,)
    is_alike: Flags  # (n_gangs,): it takes the same number on every server
    is_exclusive: Flags  # (n_gangs,): it takes all GPUs of its servers

    def residents(self, servers: Servers, model: Rows, left_s: Floats) -> Residents:
        """Return the gangs with the GPUs that they hold on each server; `model` and `left_s` are `(n_gangs,)`."""
        return Residents(
            gang=self.gang,
            server=self.server,
            held=self._held(servers),
            gpus=self.gpus,
            nodes=self.nodes,
            model=model,
            left_s=left_s,
        )

    def _held(self, servers: Servers) -> Rows:
        """Return the GPUs of each part, `(n_parts,)`.

        Gangs on one server are certain, as are those that take the same number on every server and exclusive ones. Any
        other takes what is in use on its servers beside the certain ones.
        """
        is_certain = (self.nodes == 1) | self.is_exclusive | (self.is_alike & (self.gpus % self.nodes == 0))
        alike = (self.gpus // self.nodes)[self.gang]
        most = servers.gpus[self.server]
        held = np.minimum(np.where(self.is_exclusive[self.gang], most, alike), most)
        is_sure = is_certain[self.gang]
        taken = np.bincount(self.server[is_sure], held[is_sure], minlength=len(servers)).astype(np.intp)
        in_use = (servers.gpus - servers.free - taken).tolist()
        first = np.searchsorted(self.gang, np.arange(len(self.gpus)))
        for row in np.flatnonzero(~is_certain).tolist():
            parts = slice(int(first[row]), int(first[row] + self.nodes[row]))
            shared = shared_out(self.server[parts].tolist(), int(self.gpus[row]), in_use)
            held[parts] = np.minimum(shared, most[parts])
            for server, gpus in zip(self.server[parts].tolist(), held[parts].tolist(), strict=True):
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
