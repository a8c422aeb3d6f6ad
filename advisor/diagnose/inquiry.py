"""Holds the inputs that the checks of `explain` share: one pending job, the nodes it can run on, the jobs ahead."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Self

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.domain.diagnosis import CONTENTION, Cause, causes_named
from advisor.domain.gang import GangRequest, share_of_gpu, whole_gpus
from advisor.domain.job import Job, tasks_of
from advisor.domain.node import Node, NodeService
from advisor.domain.particulars import Particulars
from advisor.domain.site import Partition
from advisor.domain.snapshot import Snapshot
from advisor.features.capacity import Fit, Fitter
from advisor.features.nodes import Counts, Flags, NodeTable, gpus_of, rows_of
from advisor.features.queue import slurms_place, tier_by_partition

# A job that Slurm leaves pending for any other reason delays no other job.
_COMPETING = CONTENTION | {Cause.UNKNOWN}


@dataclass(frozen=True, kw_only=True)
class Inquiry:
    """A pending job, the snapshot, and where the job's gang fits.

    `partitions` are the partitions of the job that are in the snapshot; `members` `(n_partitions, n_nodes)` marks
    their nodes, without those that the job excludes.
    """

    snapshot: Snapshot
    job: Job
    table: NodeTable
    fitter: Fitter
    fit: Fit
    partitions: tuple[Partition, ...]
    members: Flags
    particulars: Particulars

    @classmethod
    def of(cls, snapshot: Snapshot, table: NodeTable, job: Job, particulars: Particulars) -> Self:
        """Return the inquiry into one pending job."""
        fitter = Fitter(snapshot, table)
        partitions = tuple(partition for partition in snapshot.partitions if partition.name in job.partitions)
        members = table.partition_member[[table.partition_names.index(partition.name) for partition in partitions]]
        members[:, rows_of(table, job.gang.excluded_nodes)] = False
        return cls(
            snapshot=snapshot,
            job=job,
            table=table,
            fitter=fitter,
            fit=fitter.fit(job.gang, job.partitions),
            partitions=partitions,
            members=members,
            particulars=particulars,
        )

    @property
    def gang(self) -> GangRequest:
        """Return the gang that the job asks for."""
        return self.job.gang

    @property
    def nodes(self) -> Flags:
        """Return the nodes of any of its partitions: `(n_nodes,)`."""
        return np.asarray(self.members.any(axis=0))

    @cached_property
    def reserved(self) -> Flags:
        """Return the nodes that only a reservation closes: `(n_nodes,)`."""
        return self._where(lambda node: node.is_only_reserved)

    @cached_property
    def coming(self) -> Flags:
        """Return the nodes that will take jobs again without an operator, those reserved left out: `(n_nodes,)`."""
        return self._where(lambda node: node.service is NodeService.LATER and not node.is_only_reserved)

    @cached_property
    def out_of_service(self) -> Flags:
        """Return the nodes that take no jobs before an operator acts: `(n_nodes,)`."""
        return self._where(lambda node: node.service is NodeService.OUT)

    @property
    def hides_nodes(self) -> bool:
        """Return whether its partitions can have nodes that the snapshot does not show."""
        rows = self.table.row_by_name
        lacking = any(name not in rows for partition in self.partitions for name in partition.nodes)
        return lacking or self.snapshot.config.hides_powered_down

    def _where(self, holds: Callable[[Node], bool]) -> Flags:
        # Rows of the table stand in the order of the snapshot.
        return np.array([holds(node) for node in self.snapshot.nodes], dtype=np.bool_)

    @property
    def emptied(self) -> NodeTable:
        """Return the nodes as they are without jobs."""
        table = self.table
        return replace(
            table, gpus_idle=table.gpus_total, cpus_idle=table.cpus_total, memory_idle_mib=table.memory_total_mib
        )

    def fits_now_as(self, gang: GangRequest) -> bool:
        """Return whether the job would fit now with another request."""
        return self.fitter.tier_now(gang, self.job.partitions) is not None

    def fits_on_whole_gpus(self, gang: GangRequest) -> bool:
        """Return whether the job would fit now with another request, were there no slices of GPUs."""
        is_whole = np.array([share_of_gpu(gpu_type) >= 1.0 for gpu_type in self.table.gpu_types], dtype=np.bool_)
        if is_whole.all():
            return self.fits_now_as(gang)
        table = replace(
            self.table, gpus_idle=self.table.gpus_idle * is_whole, gpus_total=self.table.gpus_total * is_whole
        )
        return Fitter(self.snapshot, table).tier_now(gang, self.job.partitions) is not None

    def fits_now_with(self, table: NodeTable) -> bool:
        """Return whether the gang would fit now on the nodes of another table."""
        return Fitter(self.snapshot, table).tier_now(self.gang, self.job.partitions) is not None

    def most_idle(self, gpu_type: str | None) -> Counts:
        """Return the idle GPUs of a type per usable node, `(n_nodes,)`, in the partition with the most of them."""
        idle = gpus_of(self.table.gpu_types, self.table.gpus_startable, gpu_type)
        by_partition = np.where(self.members, idle, 0)
        return np.asarray(by_partition[by_partition.sum(axis=1).argmax()])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """The pending jobs that may start on a job's nodes and come before it; arrays count with all waiting tasks.

    `own_jobs` are those of the job's own user, `users` the other users of the jobs ahead. `gpus` counts what requests
    tell.
    `unknown_priorities` are jobs whose priority, and so whose place, is unknown.
    """

    jobs: int
    own_jobs: int
    users: int
    gpu_jobs: int
    gpus: int
    highest_priority: int
    unknown_priorities: int


def ahead_of(inquiry: Inquiry) -> Ahead:
    """Count the jobs ahead of the job: a higher partition tier, then priority, submit time and id decide."""
    tiers = tier_by_partition(inquiry.snapshot)
    mine = inquiry.job
    my_place = slurms_place(mine, max((partition.priority_tier for partition in inquiry.partitions), default=0))
    ahead: list[Job] = []
    unknown = 0
    tier_by_request: dict[tuple[tuple[str, ...], str | None, bool], int | None] = {}
    competing = {reason for reason in {job.reason for job in inquiry.snapshot.jobs} if _competes(reason)}
    for job in inquiry.snapshot.jobs:
        if job.job_id == mine.job_id or job.reason not in competing or not _may_start(job, inquiry.snapshot.taken_at):
            continue
        request = (job.partitions, job.gang.gpu_type, job.gang.wants_gpus)
        if request not in tier_by_request:
            shared = [tiers[name] for name in _partitions_shared(inquiry, job) if name in tiers]
            tier_by_request[request] = max(shared, default=None)
        tier = tier_by_request[request]
        if tier is None:
            continue
        if job.priority is None:
            unknown += tasks_of(job)
        elif mine.priority and slurms_place(job, tier) < my_place:
            ahead.append(job)
    return Ahead(
        jobs=sum(tasks_of(job) for job in ahead),
        own_jobs=sum(tasks_of(job) for job in ahead if job.user == mine.user),
        users=len({job.user for job in ahead} - {mine.user}),
        gpu_jobs=sum(tasks_of(job) for job in ahead if job.gang.wants_gpus),
        gpus=whole_gpus(
            (gpu_type, tasks_of(job) * count)
            for job in ahead
            for gpu_type, count in (job.gang.gpus_by_type or {}).items()
        ),
        highest_priority=max((job.priority or 0 for job in ahead), default=0),
        unknown_priorities=unknown,
    )


def _partitions_shared(inquiry: Inquiry, other: Job) -> Iterator[str]:
    """Yield the partitions of another job through which it can take nodes that the job can use, or its own.

    In its own partitions slurmctld starts a job after those ahead, whatever they ask for, except by backfill.
    """
    nodes = inquiry.nodes & _with_gpus(inquiry, inquiry.job) & _with_gpus(inquiry, other)
    for name, member in zip(inquiry.table.partition_names, inquiry.table.partition_member, strict=True):
        if name in other.partitions and (name in inquiry.job.partitions or (member & nodes).any()):
            yield name


def _with_gpus(inquiry: Inquiry, job: Job) -> Flags:
    """Return the nodes with GPUs that a job asks for, all for a job without: `(n_nodes,)`."""
    table = inquiry.table
    if not job.gang.wants_gpus:
        return np.ones(len(table.names), dtype=np.bool_)
    return np.asarray(gpus_of(table.gpu_types, table.gpus_total, job.gang.gpu_type) > 0)


def _competes(reason: str) -> bool:
    named = causes_named(reason)
    return not named or not named.isdisjoint(_COMPETING)


def _may_start(job: Job, now: float) -> bool:
    """Return whether a pending job would start as soon as it fits; one that is held has the priority 0."""
    return (
        job.is_pending
        and not job.held
        and job.priority != 0
        and not job.dependency
        and not (job.eligible_time is not None and job.eligible_time > now)
    )
