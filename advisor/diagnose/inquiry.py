"""Holds the inputs that the checks of `explain` share: one pending job and the nodes it can run on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from advisor.domain.gang import GangRequest, share_of_gpu
from advisor.domain.job import Job
from advisor.domain.node import Node, NodeService
from advisor.domain.particulars import Particulars
from advisor.domain.site import Partition
from advisor.domain.snapshot import Snapshot
from advisor.features.capacity import Fit, Fitter
from advisor.features.nodes import Counts, Flags, NodeTable, gpus_of, rows_of


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
