"""Computes whether a gang could start now on nodes that are named, and on those alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.features.capacity import Fitter, node_table


@dataclass(frozen=True, kw_only=True)
class NamedNodes:
    """The nodes of a snapshot, as they are free for gangs that name them; the table is made on first use."""

    snapshot: Snapshot

    def hold(self, job: Job, names: Sequence[str]) -> bool:
        """Return whether the job fits now on the named nodes, with a part of it on each of them."""
        return hold(self._fitter, job, names)

    @cached_property
    def _fitter(self) -> Fitter:
        return Fitter(self.snapshot, node_table(self.snapshot))


def hold(fitter: Fitter, job: Job, names: Sequence[str]) -> bool:
    """Return whether the job fits now on the named nodes, with a part of it on each of them."""
    count = len(names)
    if not count or not job.gang.nodes_min <= count <= (job.gang.nodes_max or count):
        return False
    gang = replace(job.gang, nodes_min=count, nodes_max=count, nodes_open=False, required_nodes=tuple(names))
    return fitter.tier_now(gang, job.partitions) is not None
