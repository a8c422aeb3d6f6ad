"""Computes what the nodes of one partition can give to a gang, and how few nodes, or how close ones, suffice."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import MOST, GangRequest, GpuCount
from advisor.features.nodes import (
    Chunk,
    Counts,
    Flags,
    Floats,
    Mebibytes,
    NodeTable,
    bounds,
    chunks_in,
    gpus_of,
    rows_of,
)

# Below the smallest shortage that integer counts up to 10^8 can show, above the rounding of a sum of 10^5 terms.
_ENOUGH = 1.0 - 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """The resources that nodes offer in one case; `promise` is True for "now", where nothing must be overstated."""

    gpus: Counts  # (n_nodes, n_types)
    cpus: Counts  # (n_nodes,)
    memory_mib: Mebibytes  # (n_nodes,)
    open: Flags  # (n_nodes,)
    promise: bool


@dataclass(frozen=True, kw_only=True)
class PartitionOffer:
    """The nodes of one partition that a view offers resources of; every array is in the order of `rows`."""

    table: NodeTable
    rows: NDArray[np.intp]  # (n_rows,) of the table
    gpus: Counts  # (n_rows, n_types)
    cpus: Counts  # (n_rows,)
    memory_mib: Mebibytes  # (n_rows,)
    promise: bool

    @classmethod
    def of(cls, table: NodeTable, member: Flags, view: NodeView) -> "PartitionOffer":
        """Select the open nodes with a CPU, without which Slurm starts nothing."""
        rows = np.flatnonzero(member & view.open & (view.cpus > 0))
        return cls(
            table=table,
            rows=rows,
            gpus=view.gpus[rows],
            cpus=view.cpus[rows],
            memory_mib=view.memory_mib[rows],
            promise=view.promise,
        )

    def gpus_of(self, gpu_type: str | None) -> Counts:
        """Return the GPUs of one type, or of all (None), on each node: `(n_rows,)`."""
        if gpu_type not in self._gpus_by_type:
            self._gpus_by_type[gpu_type] = gpus_of(self.table.gpu_types, self.gpus, gpu_type)
        return self._gpus_by_type[gpu_type]

    @cached_property
    def _gpus_by_type(self) -> dict[str | None, Counts]:
        return {}

    def lacks(self, gang: GangRequest) -> bool:
        """Return whether there are too few GPUs, a quick check that settles most of a long queue."""
        return any(gpu.count > self.gpus_of(gpu.gpu_type).sum() for gpu in gang.per_job) or any(
            gpu.count > self.gpus_of(gpu.gpu_type).max(initial=0) for gpu in gang.per_node
        )

    def able(self, gang: GangRequest) -> Flags:
        """Return a mask of the nodes that could be part of the gang, apart from those that it names: `(n_rows,)`."""
        able = self._gives_more_than_gpus(gang)
        able &= self.cpus >= _cpus_beside(gang, gang.per_node)
        if gang.memory_mib_per_node:
            able &= self.memory_mib >= gang.memory_mib_per_node
        for gpu in bounds(gang.per_node):
            able &= self.gpus_of(gpu.gpu_type) >= gpu.count
        if self.promise and _counts_tasks(gang):
            # Slurm gives each node of a job a task.
            able &= self._tasks(gang, np.ones(len(self.rows), dtype=np.bool_)) >= 1
        if self.promise and gang.exclusive:
            able &= self.table.empty[self.rows]
        if self.promise and gang.only_beside:
            holder = self.table.holder[self.rows]
            able &= (holder == "") | (holder == gang.only_beside)
        elif self.promise:
            able &= ~self.table.owned[self.rows]
        for gpu in gang.per_socket:
            # The sockets are unknown: one at least, and never more GPUs than the node has.
            whole = gpus_of(self.table.gpu_types, self.table.gpus_total[self.rows], gpu.gpu_type)
            able &= self.gpus_of(gpu.gpu_type) >= (np.maximum(whole, gpu.count) if self.promise else gpu.count)
        held = [self.gpus_of(gpu.gpu_type) > 0 for gpu in gang.per_job if gpu.count]
        if held:
            able &= held[0] if len(held) == 1 else np.any(np.stack(held), axis=0)
        return np.asarray(able)

    def _gives_more_than_gpus(self, gang: GangRequest) -> Flags:
        """Return a mask of the nodes with the CPUs, disk and other resources that every node must have: `(n_rows,)`."""
        table, rows = self.table, self.rows
        gives = self.cpus >= gang.cpus_per_node
        if gang.tmp_disk_mib:
            disk_mib = table.tmp_disk_mib[rows]
            gives &= (disk_mib >= gang.tmp_disk_mib) | ((disk_mib < 0) & (not self.promise))
        for name in gang.feature_names:
            gives &= table.features[name][rows] if name in table.features else False
        for asked in gang.gres:
            kinds = table.gres_idle if self.promise else table.gres_total
            held = [
                counts[rows]
                for (name, gres_type), counts in kinds.items()
                if name == asked.name and asked.gres_type in (None, gres_type)
            ]
            gives &= sum(held, np.zeros(len(rows), dtype=np.int64)) >= asked.count
        return np.asarray(gives)

    def amounts(self, gang: GangRequest, able: Flags) -> Floats:
        """Return what each of the `able` nodes gives of each thing that is counted over the gang, as a share of all.

        `(n_able, n_needs)`. CPUs go in whole tasks where there are several.
        """
        cpus, shares = self.cpus[able], []
        for gpu in bounds(gang.per_job):
            held = self.gpus_of(gpu.gpu_type)[able]
            if gang.cpus_per_gpu:
                held = np.minimum(held, cpus // gang.cpus_per_gpu)
            per_node = sum(bound.count for bound in gang.per_node)
            shares.append((np.minimum(held, per_node) if per_node else held) / gpu.count)
        if _counts_tasks(gang):
            shares.append(np.minimum(self._tasks(gang, able), gang.tasks_per_node or gang.tasks) / gang.tasks)
        else:
            shares.append(cpus / max(1, gang.cpus))
        # A node gives no more than the whole request; the rest of its resources does not count, and can be much.
        return np.minimum(np.stack(shares, axis=1), 1.0)

    def _tasks(self, gang: GangRequest, able: Flags) -> Counts:
        """Count the tasks of a gang that each of the `able` nodes can hold: `(n_able,)`."""
        rounded_up = gang.tasks - 1 if self.promise else 0
        beside = max(_cpus_beside(gang, gang.per_task), (gang.cpus + rounded_up) // gang.tasks)
        task = Chunk(gpus=gang.per_task, cpus=beside)
        return chunks_in(self.table.gpu_types, self.gpus[able], self.cpus[able], self.memory_mib[able], task)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The nodes that can be part of a gang, and what each gives, as shares up to 1 of the gang's total needs."""

    rows: NDArray[np.intp]  # (n_rows,)
    shares: Floats  # (n_rows, n_needs)
    pinned: Flags  # (n_rows,), those that the gang insists on
    pins: int  # how many those are
    promise: bool

    @classmethod
    def of(cls, side: PartitionOffer, gang: GangRequest) -> "Offer | None":
        """Return the offer of one partition; None with too few GPUs, or if a required node is unsuitable."""
        if side.lacks(gang):
            return None
        able, pinned = side.able(gang), np.zeros(len(side.rows), dtype=np.bool_)
        if gang.excluded_nodes:
            able &= ~np.isin(side.rows, rows_of(side.table, gang.excluded_nodes))
        if gang.required_nodes:
            pinned = np.isin(side.rows, rows_of(side.table, gang.required_nodes))
            if chooses_among_required(gang):
                able &= pinned
                pinned[:] = False
            elif np.count_nonzero(pinned & able) < len(set(gang.required_nodes)):
                return None
        pinned = pinned[able]
        return cls(
            rows=side.rows[able],
            shares=side.amounts(gang, able),
            pinned=pinned,
            pins=int(np.count_nonzero(pinned)) if gang.required_nodes else 0,
            promise=side.promise,
        )

    @property
    def pins_inside(self) -> bool:
        """Whether every node that the gang insists on is among the nodes."""
        return not self.pins or int(np.count_nonzero(self.pinned)) >= self.pins

    def fewest(self) -> int | None:
        """Return the fewest nodes on which a gang that names none fits, if it must bound them; None if none do."""
        if not len(self.rows):
            return None
        sums = self._sums
        if not (sums[-1] >= _ENOUGH).all():
            return None
        return int((sums < _ENOUGH).sum(axis=0).max()) + 1

    def is_enough(self, nodes_min: int, nodes_max: int | None) -> bool:
        """Whether the nodes hold the gang, wherever they stand."""
        if len(self.rows) < max(nodes_min, 1):
            return False
        if nodes_max is None or nodes_max >= len(self.rows):
            return bool((self._values(bounded=nodes_max is not None).sum(axis=0) >= _ENOUGH).all())
        return bool((self._sums[nodes_max - 1] >= _ENOUGH).all())

    def is_enough_on_one(self, nodes_min: int) -> bool:
        """Whether one of the nodes holds the gang."""
        if nodes_min > 1 or self.pins > 1:
            return False
        return bool(self.holds_alone.any())

    def can_run_out(self, nodes_min: int) -> bool:
        """Whether fewer nodes than `nodes_min` can hold all GPUs, or tasks, that are counted over all nodes."""
        gpus = -np.sort(-self.shares[:, 0])
        return len(gpus) >= nodes_min and gpus[0] > gpus[-1] and bool(gpus[: nodes_min - 1].sum() >= _ENOUGH)

    @property
    def holds_alone(self) -> Flags:
        """Mark the nodes that hold the gang alone: `(n_rows,)`."""
        holds = np.asarray((self.shares >= _ENOUGH).all(axis=1))
        return holds & self.pinned if self.pins else holds

    def is_enough_together(self, group: Counts, nodes_min: int, nodes_max: int | None) -> bool:
        """Whether the nodes of one group hold the gang; `group` is `(n_rows,)`, -1 for none."""
        inside = group >= 0
        group = group[inside]
        pinned = self.pinned[inside] if self.pins else None
        nodes = np.bincount(group)
        holds = nodes >= nodes_min
        if pinned is not None:
            holds &= np.bincount(group, weights=pinned) >= self.pins
        bound = None if nodes_max is None or nodes_max >= nodes.max(initial=0) else nodes_max
        for share in self._values(bounded=nodes_max is not None)[inside].T:
            if not holds.any():
                return False
            holds &= _largest_sums(share, group, pinned, bound) >= _ENOUGH
        return bool(holds.any())

    def among(self, inside: Flags) -> "Offer":
        """Return the part of the offer on some of its nodes, `inside` `(n_rows,)`."""
        return Offer(
            rows=self.rows[inside],
            shares=self.shares[inside],
            pinned=self.pinned[inside],
            pins=self.pins,
            promise=self.promise,
        )

    def first_enough(self, nodes_min: int, rank: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the first nodes that hold the gang: those that it names, then those that give most; empty for none.

        `rank` `(n_nodes,)` settles ties.
        """
        order = np.lexsort((rank[self.rows], -self._scarcest[:, 0], ~self.pinned))
        enough = (self.shares[order].cumsum(axis=0) >= _ENOUGH).all(axis=1)
        enough &= np.arange(1, len(order) + 1) >= max(nodes_min, self.pins)
        return self.rows[order[: int(enough.argmax()) + 1]] if enough.any() else self.rows[:0]

    def _values(self, *, bounded: bool) -> Floats:
        """Return the shares that each node contributes, `(n_rows, n_needs)`.

        With a bound on the nodes, several needs and a promise to make, each node counts as much as its scarcest share,
        `(n_rows, 1)`: such nodes do add up to every need at once, and more free resources never turn a yes into a no.
        """
        return self._scarcest if bounded and self.promise else self.shares

    @cached_property
    def _scarcest(self) -> Floats:
        return np.asarray(self.shares.min(axis=1, keepdims=True))

    @cached_property
    def _sums(self) -> Floats:
        """Return bounded sums over the first nodes, pinned ones first, then the largest: `(n_rows, n_needs)`."""
        values = self._values(bounded=True)
        if not self.pins:
            return np.asarray((-np.sort(-values, axis=0)).cumsum(axis=0))
        first, others = values[self.pinned], values[~self.pinned]
        largest = [-np.sort(-part, axis=0) for part in (first, others) if len(part)]
        return np.asarray((np.concatenate(largest) if largest else values).cumsum(axis=0))


def chooses_among_required(gang: GangRequest) -> bool:
    """Return whether a gang names more nodes than it can have: Slurm 23.02 and later choose among them."""
    return gang.most_nodes is not None and len(gang.required_nodes) > gang.most_nodes


def _largest_sums(share: Floats, group: Counts, pinned: Flags | None, nodes_max: int | None) -> Floats:
    """Add up each group's `nodes_max` largest shares, those of pinned nodes first: `(n_groups,)`; None pins none."""
    n_groups = int(group.max(initial=-1)) + 1
    if nodes_max is not None:
        order = np.lexsort((-share, group) if pinned is None else (-share, ~pinned, group))
        group, share = group[order], share[order]
        among = np.arange(len(group)) - np.searchsorted(group, group) < nodes_max
        group, share = group[among], share[among]
    return np.asarray(np.bincount(group, weights=share, minlength=n_groups), dtype=np.float64)


def _counts_tasks(gang: GangRequest) -> bool:
    """Whether CPUs go to a gang in whole tasks."""
    return bool(gang.per_task) or gang.tasks >= max(2, gang.nodes_min)


def _cpus_beside(gang: GangRequest, gpus: tuple[GpuCount, ...]) -> int:
    """Return the CPUs that must stand beside some of the gang's GPUs on one node, at least one."""
    return min(max(1, (gang.cpus_per_gpu or 0) * sum(gpu.count for gpu in gpus)), MOST)
