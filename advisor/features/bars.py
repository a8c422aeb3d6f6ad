"""Finds pending jobs that a bar keeps from nodes with room for them, and whether a gang fits on nodes that it names.

A bar is read, or Slurm alone sees it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from advisor.domain.dataclass import dataclass
from advisor.domain.diagnosis import RESOURCES, causes_named
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.features.capacity import Doubt, Fitter, node_table
from advisor.features.queue import competing, highest_tier, joined, slurms_place, tier_by_partition


def barred(snapshot: Snapshot) -> frozenset[int]:
    """Return the pending GPU jobs that need not start where there is room for them.

    Either they need something beside GPUs that only some of their nodes have, or Slurm has planned a later start for
    them although they fit now by what is read, and no job waits before them.
    """
    waiting = competing(snapshot.pending_gpu_jobs, snapshot.taken_at)
    particular = [job for job in waiting if job.gang.gres or job.gang.tmp_disk_mib]
    planned = [job for job in waiting if job.is_planned_after(snapshot.taken_at) and not job.reservation]
    if not particular and not planned:
        return frozenset()
    fitter = Fitter(snapshot, node_table(snapshot))
    narrowed = (
        job.job_id for job in particular if Doubt.BARRED_NODES in fitter.fit_in_service(job.gang, job.partitions).doubts
    )
    first = {job.job_id for job in _first_in_line(snapshot, fitter)} if planned else set()
    unseen = (
        job.job_id
        for job in planned
        if fitter.has_room(job) and (causes_named(job.reason) == RESOURCES or job.job_id in first)
    )
    return frozenset((*narrowed, *unseen))


def _first_in_line(snapshot: Snapshot, fitter: Fitter) -> Iterator[Job]:
    """Yield the pending jobs before which no other waits for nodes of their partitions."""
    table = fitter.table
    nodes = {
        name: table.partition_member[number].nonzero()[0].tolist() for number, name in enumerate(table.partition_names)
    }
    group_by_partition = joined(nodes)
    tiers = tier_by_partition(snapshot)
    line = [job for job in snapshot.pending if job.priority and not job.held and not job.dependency]
    line.sort(key=lambda job: slurms_place(job, highest_tier(job, tiers)))
    taken: set[int] = set()
    for job in line:
        groups = {group_by_partition[name] for name in job.partitions if name in group_by_partition}
        if not groups & taken:
            yield job
        taken |= groups


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
