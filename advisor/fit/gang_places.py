"""Describes the places of gangs on several servers as planning does before it tries one."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import node_table
from advisor.features.observe.graph import Rows
from advisor.features.observe.snapshot_graph import jobs_with_gpus, residents_of_jobs, servers_of_table
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
    """Return the servers of some running gangs of a snapshot by job; a gang whose servers are not known is left out."""
    if not job_ids:
        return {}
    table = node_table(snapshot)
    servers = servers_of_table(table)
    residents = residents_of_jobs(snapshot, table, _no_model, _no_time)
    held = {}
    for row, job in enumerate(jobs_with_gpus(snapshot, table)):
        if job.job_id in job_ids:
            parts = residents.gang == row
            places = residents.server[parts]
            gpus, of_server = residents.held[parts].tolist(), servers.gpus[places].tolist()
            held[job.job_id] = HeldServers(
                span=span_of(len(places), len(np.unique(servers.leaf[places]))),
                shares={
                    table.names[server]: share_of(mine, there)
                    for server, mine, there in zip(places.tolist(), gpus, of_server, strict=True)
                },
                decided_by=decided_by,
            )
    return held


def _no_model(names: Collection[str]) -> Rows:
    return np.zeros(len(names), np.intp)


def _no_time(_: Job) -> float:
    return 0.0
