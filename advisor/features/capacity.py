"""Which gangs fit where on the nodes of a snapshot, now and ever."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from advisor.domain.gang import GangRequest, GpuCount
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
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
    memory_is_shared_out,
    node_table,
    rows_of,
)

__all__ = ["Doubt", "Fit", "Fitter", "NodeTable", "node_table"]

# Below the smallest shortage that integer counts up to 10^8 can show, above the rounding of a sum of 10^5 terms.
_ROUNDING = 1e-9


class Doubt(StrEnum):
    """Why a gang may fit on fewer nodes than computed, or why nothing was promised."""

    FEATURES = "features"
    SHARES = "shares"
    SOCKETS = "sockets"
    MEMORY = "memory"
    GPUS_UNKNOWN = "gpus_unknown"
    PARTITION_UNKNOWN = "partition_unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Where a gang could start now, and where it could if the nodes were empty and in service.

    `tier_now`, `tier_in_service` (were the nodes that take jobs empty) and `tier_ever` (were all of them) are the
    closest tiers, None for nowhere. "Now" is never promised wrongly but for `doubts`; the others are never denied
    wrongly.
    """

    tier_now: LocalityTier | None
    tier_in_service: LocalityTier | None = field(default=None, compare=False)
    tier_ever: LocalityTier | None
    doubts: tuple[Doubt, ...] = ()

    @property
    def uncertain(self) -> bool:
        """Whether something the table cannot show restricts the gang further."""
        return bool(self.doubts)

    @property
    def restricted(self) -> bool:
        """Whether the gang may be kept from nodes that the table takes for fit; nothing is then changed about it.

        Memory that is not asked for keeps it from none: Slurm fills in a default, or the node is empty.
        """
        return any(doubt is not Doubt.MEMORY for doubt in self.doubts)

    @property
    def best_tier(self) -> LocalityTier:
        """The closest tier the gang can have on the nodes in service; CLUSTER where it fits nowhere."""
        return LocalityTier.CLUSTER if self.tier_in_service is None else self.tier_in_service

    @property
    def fits_now(self) -> bool:
        """Whether it could start now anywhere in one of its partitions."""
        return self.tier_now is not None

    @property
    def fits_leaf_now(self) -> bool:
        """Whether it could start now under one leaf switch."""
        return self.tier_now is not None and self.tier_now <= LocalityTier.LEAF

    @property
    def fits_node_now(self) -> bool:
        """Whether it could start now on one node."""
        return self.tier_now is LocalityTier.NODE

    @property
    def fits_ever(self) -> bool:
        """Whether the nodes of one of its partitions are enough for it."""
        return self.tier_ever is not None

    @property
    def fits_leaf_ever(self) -> bool:
        """Whether the nodes of one leaf are enough for it."""
        return self.tier_ever is not None and self.tier_ever <= LocalityTier.LEAF

    @property
    def fits_node_ever(self) -> bool:
        """Whether one node is enough for it."""
        return self.tier_ever is LocalityTier.NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """What the nodes offer under one question; `promise` is True for "now", where nothing may be overstated."""

    gpus: Counts  # (n_nodes, n_types)
    cpus: Counts  # (n_nodes,)
    memory_mib: Mebibytes  # (n_nodes,)
    open: Flags  # (n_nodes,)
    promise: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """The nodes that may take part in a gang, and what each gives as shares of what the gang needs in all."""

    rows: NDArray[np.intp]  # (n_rows,)
    shares: Floats  # (n_rows, n_needs)
    pinned: Flags  # (n_rows,)


class Fitter:
    """Answers where gangs fit on one table, each distinct request once."""

    def __init__(self, snapshot: Snapshot, table: NodeTable) -> None:
        self._table = table
        self._partitions = snapshot.partitions_by_name
        self._number_by_partition = {name: number for number, name in enumerate(table.partition_names)}
        self._memory_shared_out = memory_is_shared_out(snapshot.config)
        self._memory_binds_surely = bool(snapshot.config.select_parameters) and self._memory_shared_out
        self._now = _View(
            gpus=table.gpus_idle,
            cpus=table.cpus_idle,
            memory_mib=table.memory_idle_mib if self._memory_shared_out else table.memory_total_mib,
            open=table.usable,
            promise=True,
        )
        self._ever = _View(
            gpus=table.gpus_total,
            cpus=table.cpus_total,
            memory_mib=table.memory_total_mib,
            open=np.ones_like(table.usable),
            promise=False,
        )
        self._in_service = replace(self._ever, open=table.usable)
        self._fits: dict[tuple[GangRequest, tuple[str, ...]], Fit] = {}

    def fit(self, gang: GangRequest, partitions: tuple[str, ...]) -> Fit:
        """Tell where a gang fits, inside any one of `partitions`; a partition that is down starts nothing now."""
        key = (gang, partitions)
        found = self._fits.get(key)
        if found is None:
            known = [name for name in partitions if name in self._number_by_partition]
            running = [name for name in known if self._partitions[name].is_up and gang.gpus_known]
            found = self._fits[key] = Fit(
                tier_now=self._closest(gang, running, self._now),
                tier_in_service=self._closest(gang, known, self._in_service),
                tier_ever=self._closest(gang, known, self._ever),
                doubts=self._doubts(gang, partitions),
            )
        return found

    def fewest_nodes(self, gang: GangRequest, partitions: tuple[str, ...]) -> int | None:
        """Return the fewest nodes of a gang's own range that could hold it, were those in service empty.

        None where the gang leaves its node count open, or none of its range would do.
        """
        if gang.nodes_max is None or self.fit(gang, partitions).tier_in_service is None:
            return None
        low, high = gang.nodes_min, gang.nodes_max
        # More nodes never turn a yes into a no, so the first count that suffices can be bisected.
        while low < high:
            middle = (low + high) // 2
            if self.fit(replace(gang, nodes_max=middle), partitions).tier_in_service is None:
                low = middle + 1
            else:
                high = middle
        return low

    def _doubts(self, gang: GangRequest, partitions: tuple[str, ...]) -> tuple[Doubt, ...]:
        holds = {
            Doubt.FEATURES: bool(gang.features),
            Doubt.SHARES: bool(gang.shares),
            Doubt.SOCKETS: bool(gang.per_socket),
            Doubt.MEMORY: gang.memory_mib_per_node is None and self._memory_binds_surely,
            Doubt.GPUS_UNKNOWN: not gang.gpus_known,
            Doubt.PARTITION_UNKNOWN: not partitions or not self._number_by_partition.keys() >= set(partitions),
        }
        return tuple(doubt for doubt, there in holds.items() if there)

    def _closest(self, gang: GangRequest, partitions: list[str], view: _View) -> LocalityTier | None:
        tiers = [self._tier_in(gang, name, view) for name in partitions]
        return min((tier for tier in tiers if tier is not None), default=None)

    def _tier_in(self, gang: GangRequest, partition: str, view: _View) -> LocalityTier | None:
        """Find the closest tier at which the nodes of one partition hold the gang."""
        limits = (gang.nodes_max, self._partitions[partition].max_nodes_per_job)
        nodes_max = min((limit for limit in limits if limit is not None), default=None)
        if nodes_max is not None and nodes_max < gang.nodes_min:
            return None
        offer = self._offer(gang, self._table.partition_member[self._number_by_partition[partition]], view)
        if offer is None:
            return None
        groups = {
            LocalityTier.NODE: np.arange(len(offer.rows), dtype=np.int32),
            LocalityTier.LEAF: self._table.leaf[offer.rows],
            LocalityTier.SPINE: self._table.spine[offer.rows],
            LocalityTier.CLUSTER: np.zeros(len(offer.rows), dtype=np.int32),
        }
        # Most of a long queue fits nowhere: the widest tier answers for all.
        if not _some_group_holds(offer, groups[LocalityTier.CLUSTER], gang.nodes_min, nodes_max, view.promise):
            return None
        return next(
            tier
            for tier, group in groups.items()
            if tier is LocalityTier.CLUSTER or _some_group_holds(offer, group, gang.nodes_min, nodes_max, view.promise)
        )

    def _offer(self, gang: GangRequest, member: Flags, view: _View) -> _Offer | None:
        """Say what each node could give to the gang; None where a node it insists on cannot take part."""
        able = self._able(gang, view) & member
        able[rows_of(self._table, gang.excluded_nodes)] = False
        pinned = np.zeros_like(able)
        required = rows_of(self._table, gang.required_nodes)
        pinned[required] = True
        if gang.nodes_max is not None and len(gang.required_nodes) > gang.nodes_max:
            # Slurm 23.02 and later choose among a list that is longer than the node count.
            able &= pinned
            pinned[:] = False
        elif len(required) < len(gang.required_nodes) or not able[required].all():
            return None
        rows = np.flatnonzero(able)
        amounts, needs = self._amounts(gang, view)
        return _Offer(rows=rows, shares=amounts[rows] / needs, pinned=pinned[rows])

    def _able(self, gang: GangRequest, view: _View) -> Flags:
        """Mark the nodes that could be one of the gang's: `(n_nodes,)`."""
        types = self._table.gpu_types
        memory_mib = gang.memory_mib_per_node or 0
        chunk = Chunk(gpus=gang.per_node, cpus=_cpus_beside(gang, gang.per_node), memory_mib=memory_mib)
        able = view.open & (chunks_in(types, view.gpus, view.cpus, view.memory_mib, chunk) >= 1)
        if gang.exclusive and view.promise:
            able &= self._table.empty
        for gpu in gang.per_socket:
            # The sockets are unknown: one at least, and never more GPUs than the node has.
            whole = gpus_of(types, self._table.gpus_total, gpu.gpu_type)
            able &= gpus_of(types, view.gpus, gpu.gpu_type) >= (
                np.maximum(whole, gpu.count) if view.promise else gpu.count
            )
        if any(gpu.count for gpu in gang.per_job):
            held = [gpus_of(types, view.gpus, gpu.gpu_type) for gpu in gang.per_job if gpu.count]
            able &= np.any(np.stack(held) > 0, axis=0)
        return np.asarray(able)

    def _amounts(self, gang: GangRequest, view: _View) -> tuple[Floats, Floats]:
        """Return what each node gives of each thing that is counted over the gang, and how much it needs.

        Shapes `(n_nodes, n_needs)` and `(n_needs,)`. CPUs go in whole tasks where there are several.
        """
        types = self._table.gpu_types
        amounts, needs = [], []
        for gpu in bounds(gang.per_job):
            held = gpus_of(types, view.gpus, gpu.gpu_type)
            if gang.cpus_per_gpu:
                held = np.minimum(held, view.cpus // gang.cpus_per_gpu)
            per_node = sum(bound.count for bound in gang.per_node)
            amounts.append(np.minimum(held, per_node) if per_node else held)
            needs.append(gpu.count)
        if gang.per_task or gang.tasks >= max(2, gang.nodes_min):
            rounded_up = gang.tasks - 1 if view.promise else 0
            cpus = max(_cpus_beside(gang, gang.per_task), (gang.cpus + rounded_up) // gang.tasks)
            task = Chunk(gpus=gang.per_task, cpus=cpus)
            amounts.append(chunks_in(types, view.gpus, view.cpus, view.memory_mib, task))
            needs.append(gang.tasks)
        else:
            amounts.append(view.cpus)
            needs.append(max(1, gang.cpus))
        return np.stack(amounts, axis=1).astype(np.float64), np.array(needs, dtype=np.float64)


def _cpus_beside(gang: GangRequest, gpus: tuple[GpuCount, ...]) -> int:
    """Return the CPUs that must stand beside some of the gang's GPUs on one node, at least one."""
    return max(1, (gang.cpus_per_gpu or 0) * sum(gpu.count for gpu in gpus))


def _some_group_holds(offer: _Offer, group: Counts, nodes_min: int, nodes_max: int | None, promise: bool) -> bool:
    """Whether the nodes of one group are enough for the gang; `group` is `(n_rows,)`, -1 for none.

    With a bound on the nodes, several needs and a promise to make, each node counts as much as its scarcest
    share: such nodes do add up to every need at once, and more free resources never turn a yes into a no.
    """
    inside = group >= 0
    group, pinned, shares = group[inside], offer.pinned[inside], offer.shares[inside]
    n_groups = int(group.max(initial=-1)) + 1
    holds = np.bincount(group, minlength=n_groups) >= nodes_min
    holds &= np.bincount(group, weights=pinned, minlength=n_groups) >= offer.pinned.sum()
    if promise and nodes_max is not None:
        shares = shares.min(axis=1, keepdims=True)
    for share in shares.T:
        # A node gives at most all: what it has beyond that helps nobody, and may be much.
        holds &= _largest_sums(np.minimum(share, 1.0), group, pinned, nodes_max, n_groups) >= 1 - _ROUNDING
    return bool(holds.any())


def _largest_sums(share: Floats, group: Counts, pinned: Flags, nodes_max: int | None, n_groups: int) -> Floats:
    """Add up each group's `nodes_max` largest shares, those of pinned nodes first: `(n_groups,)`."""
    if nodes_max is not None:
        order = np.lexsort((-share, ~pinned, group))
        group, share = group[order], share[order]
        rank = np.arange(len(group)) - np.searchsorted(group, group)
        group, share = group[rank < nodes_max], share[rank < nodes_max]
    return np.asarray(np.bincount(group, weights=share, minlength=n_groups), dtype=np.float64)
