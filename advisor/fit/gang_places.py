"""Describes the places of gangs on several servers as planning does before it tries one."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import NodeTable, node_table, rows_of
from advisor.features.observe.graph import Servers
from advisor.features.observe.snapshot_graph import jobs_with_gpus, servers_of_table
from advisor.features.observe.subspaces import share_of, span_of


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPlace:
    """The place of a gang on several servers: its span, and the gang's share of the GPUs of the most loaded server.

    `decided_by` is the digest of the policy in whose cycle the gang was first seen on it, "" for the rules.
    """

    span: str
    share: str
    decided_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldServers:
    """The servers of a running gang: their span, and by name the gang's share of the GPUs of each."""

    span: str
    shares: Mapping[str, str]
    decided_by: str

    def place(self, most_loaded: str) -> GangPlace | None:
        """Return the place of the gang by its most loaded server; None where that is not known."""
        share = self.shares.get(most_loaded)
        return None if share is None else GangPlace(span=self.span, share=share, decided_by=self.decided_by)


def held_servers(snapshot: Snapshot, job_ids: Collection[int], decided_by: str) -> dict[int, HeldServers]:
    """Return the servers of some running gangs of a snapshot by job; a gang whose servers are not known is left out.

    Slurm shows the GPUs of a gang in all: it is taken to hold an even part of them on each server.
    """
    if not job_ids:
        return {}
    table = node_table(snapshot)
    servers = servers_of_table(table)
    return {
        job.job_id: _held(job, table, servers, decided_by)
        for job in jobs_with_gpus(snapshot, table)
        if job.job_id in job_ids
    }


def _held(job: Job, table: NodeTable, servers: Servers, decided_by: str) -> HeldServers:
    allocation = job.allocation
    rows = rows_of(table, allocation.nodes) if allocation is not None else []
    gpus = sum(held.count for held in allocation.gpus) if allocation is not None else 0
    part = -(-gpus // max(len(rows), 1))
    return HeldServers(
        span=span_of(len(rows), len(np.unique(servers.leaf[rows]))),
        shares={
            table.names[row]: share_of(of_server if job.gang.exclusive else part, of_server)
            for row, of_server in zip(rows, servers.gpus[rows].tolist(), strict=True)
        },
        decided_by=decided_by,
    )
