"""Computes where gangs fit on the nodes of a snapshot, now and ever."""

from collections.abc import Hashable
from dataclasses import field, replace
from enum import IntEnum, StrEnum, auto
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import GangRequest
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.features.nodes import Counts, Flags, Mebibytes, NodeTable, memory_is_shared_out, node_table, rows_of
from advisor.features.offers import NodeView, Offer, PartitionOffer, chooses_among_required

__all__ = ["Doubt", "Fit", "Fitter", "NodeTable", "asks_beyond_nodes", "node_table"]


_THREADS: Final = frozenset(("--threads-per-core", "--ntasks-per-core"))


class Doubt(StrEnum):
    """Why a gang can fit on fewer nodes than computed, or why nothing was promised."""

    FEATURES = "features"
    SHARES = "shares"
    OPTIONS = "options"
    BARRED_NODES = "barred_nodes"
    SOCKETS = "sockets"
    MEMORY = "memory"
    GPUS_UNKNOWN = "gpus_unknown"
    NODE_COUNT = "node_count"
    NODE_LIMIT = "node_limit"
    UNEQUAL_NODES = "unequal_nodes"
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
    def restricted(self) -> bool:
        """Whether nodes that the table counts as suitable could be barred to the gang, which is then not changed.

        Memory that is not requested bars no node: Slurm fills in a default, or the node is empty.
        """
        return _restrict(self.doubts)

    @property
    def best_tier(self) -> LocalityTier:
        """The closest tier that the gang can have on the nodes in service; CLUSTER if it fits nowhere."""
        return LocalityTier.CLUSTER if self.tier_in_service is None else self.tier_in_service

    @property
    def fits_now(self) -> bool:
        """Whether it could start now anywhere in one of its partitions."""
        return self.tier_now is not None

    @property
    def fits_ever(self) -> bool:
        """Whether the nodes of one of its partitions are enough for it."""
        return self.tier_ever is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The resources that nodes offer in one case, and what is known so far of the gangs that they hold."""

    view: NodeView
    sides: dict[str, PartitionOffer] = field(default_factory=dict)
    offers: dict[Hashable, Offer | None] = field(default_factory=dict)
    tiers: dict[tuple[int, tuple[str, ...]], LocalityTier | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """What fitters of the same nodes share, whatever is idle on these."""

    component: Counts | None
    in_service: _Known
    ever: _Known
    numbers: dict[GangRequest, int] = field(default_factory=dict)
    numbered: dict[int, tuple[GangRequest, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, table: NodeTable) -> "_Shared":
        ever = NodeView(
            gpus=table.gpus_total,
            cpus=table.cpus_total,
            memory_mib=table.memory_total_mib,
            open=np.ones_like(table.usable),
            promise=False,
        )
        in_service = _Known(view=replace(ever, open=table.usable))
        return cls(component=table.component, in_service=in_service, ever=_Known(view=ever))


class Fitter:
    """Computes where gangs fit on one table, once for each distinct request."""

    def __init__(self, snapshot: Snapshot, table: NodeTable, shared: _Shared | None = None) -> None:
        self.table = table
        self._snapshot, self._shared = snapshot, shared or _Shared.of(table)
        self._component = self._shared.component
        self._partitions = snapshot.partitions_by_name
        self._number_by_partition = {name: number for number, name in enumerate(table.partition_names)}
        shared_out = memory_is_shared_out(snapshot.config)
        self._memory_binds_surely = bool(snapshot.config.select_parameters) and shared_out
        now = NodeView(
            gpus=table.gpus_idle,
            cpus=table.cpus_idle,
            memory_mib=table.memory_idle_mib if shared_out else table.memory_total_mib,
            open=table.usable,
            promise=True,
        )
        self._known = {
            _When.NOW: _Known(view=now),
            _When.IN_SERVICE: self._shared.in_service,
            _When.EVER: self._shared.ever,
        }
        self._fits: dict[tuple[int, tuple[str, ...]], Fit] = {}
        self._fits_in_service: dict[tuple[int, tuple[str, ...]], Fit] = {}

    def with_idle(self, gpus: Counts, cpus: Counts, memory_mib: Mebibytes) -> "Fitter":
        """Return the fitter for other idle resources of the same nodes; what is known of empty nodes holds for both."""
        table = replace(self.table, gpus_idle=gpus, cpus_idle=cpus, memory_idle_mib=memory_mib)
        return Fitter(self._snapshot, table, self._shared)

    def fit(self, gang: GangRequest, partitions: tuple[str, ...]) -> Fit:
        """Return where a gang fits within any one of `partitions`; a partition that is down starts nothing now."""
        key = (self._number(gang), partitions)
        fit = self._fits.get(key)
        if fit is None:
            in_service, ever = self.fit_in_service(gang, partitions), self._tier_ever(gang, partitions)
            fit = self._fits[key] = replace(in_service, tier_ever=ever)
        return fit

    def fit_in_service(self, gang: GangRequest, partitions: tuple[str, ...]) -> Fit:
        """Return the result of `fit` without nodes out of service: `tier_ever` is `tier_in_service`."""
        key = (self._number(gang), partitions)
        fit = self._fits_in_service.get(key)
        if fit is None:
            in_service = self._tier(_When.IN_SERVICE, gang, partitions)
            fit = self._fits_in_service[key] = Fit(
                tier_now=self.tier_now(gang, partitions),
                tier_in_service=in_service,
                tier_ever=in_service,
                doubts=self._doubts(gang, partitions),
            )
        return fit

    def tier_now(self, gang: GangRequest, partitions: tuple[str, ...]) -> LocalityTier | None:
        """Return the closest tier at which a gang could start now, as `fit` does, at a third of the cost."""
        return self._tier(_When.NOW, gang, partitions)

    def has_room(self, job: Job) -> bool:
        """Return whether a job fits on what is idle, on few enough switches if it waits for those."""
        tier = self.tier_now(job.gang, job.partitions)
        return tier is not None and (job.gang.switches is None or tier <= LocalityTier.LEAF)

    def starts_now(self, job: Job) -> bool:
        """Return whether slurmctld can start a job on what is idle: it has room, and no later start is planned."""
        return self.has_room(job) and not job.is_planned_after(self._snapshot.taken_at)

    def nodes_now(self, gang: GangRequest, partitions: tuple[str, ...]) -> NDArray[np.intp]:
        """Return rows of nodes on which a gang could start now, at the closest tier; empty where it fits nowhere."""
        tier = self.tier_now(gang, partitions)
        for name in self._asked(_When.NOW, gang, partitions):
            offer = self._offer(_When.NOW, gang, name)
            if offer is not None and tier is not None and self._tier(_When.NOW, gang, (name,)) is tier:
                return self._picked(offer, tier, self._least_nodes(gang, name), self._most_nodes(gang, name))
        return np.zeros(0, dtype=np.intp)

    def shares_now(self, gang: GangRequest, partitions: tuple[str, ...]) -> NDArray[np.float64]:
        """Return the share of a gang that each node could hold now, `(n_nodes,)`, in the partition where it fits best.

        The share is that of what is scarcest on the node: GPUs, CPUs, or tasks.
        """
        shares, tier = np.zeros(len(self.table.names)), self.tier_now(gang, partitions)
        for name in self._asked(_When.NOW, gang, partitions):
            offer = self._offer(_When.NOW, gang, name)
            if offer is not None and tier is not None and self._tier(_When.NOW, gang, (name,)) is tier:
                shares[offer.rows] = offer.shares.min(axis=1)
                return shares
        return shares

    def restricts(self, gang: GangRequest, partitions: tuple[str, ...]) -> bool:
        """Return the restrictions of a gang, as `fit` does."""
        return _restrict(self._doubts(gang, partitions))

    def fewest_nodes(self, gang: GangRequest, partitions: tuple[str, ...]) -> int | None:
        """Return the fewest nodes of a gang's own range that could hold it, were those in service empty.

        None if the gang leaves its node count open, or no count of its range suffices.
        """
        if gang.nodes_max is None or self._tier(_When.IN_SERVICE, gang, partitions) is None:
            return None
        if not gang.required_nodes:
            return self._fewest(gang, partitions)
        low, high = gang.nodes_min, gang.nodes_max
        # More nodes never turn a yes into a no, so the first count that suffices can be bisected.
        while low < high:
            middle = (low + high) // 2
            if self._tier(_When.IN_SERVICE, replace(gang, nodes_max=middle, nodes_open=False), partitions) is None:
                low = middle + 1
            else:
                high = middle
        return low

    def _doubts(self, gang: GangRequest, partitions: tuple[str, ...]) -> tuple[Doubt, ...]:
        holds = {
            Doubt.FEATURES: bool(gang.features) and not gang.feature_names,
            Doubt.SHARES: bool(gang.shares),
            Doubt.OPTIONS: self._has_uncounted(gang),
            Doubt.BARRED_NODES: self._is_barred(gang, partitions),
            Doubt.SOCKETS: bool(gang.per_socket),
            Doubt.MEMORY: gang.memory_mib_per_node is None and self._memory_binds_surely,
            Doubt.GPUS_UNKNOWN: not gang.gpus_known,
            Doubt.NODE_COUNT: self._counts_on_more_nodes(gang, partitions),
            Doubt.NODE_LIMIT: self._counts_on_a_limit(gang, partitions),
            Doubt.UNEQUAL_NODES: self._can_run_out_of_gpus(gang, partitions),
            Doubt.PARTITION_UNKNOWN: not partitions or not self._number_by_partition.keys() >= set(partitions),
        }
        return tuple(doubt for doubt, there in holds.items() if there)

    def _counts_on_more_nodes(self, gang: GangRequest, partitions: tuple[str, ...]) -> bool:
        """Return whether a gang fits now only on more nodes than it may have, as far as Slurm shows.

        Slurm gives a job no more nodes than tasks, and does not show whether the tasks were asked for. With
        --ntasks-per-node some releases give it no more than hold its tasks. Nor does each reader tell an open node
        count from one that is the estimate: within the estimate it fits either way.
        """
        bounds = (
            gang.nodes_max if gang.nodes_open else None,
            gang.tasks if _asks_for_tasks(gang) else None,
            -(-gang.tasks // gang.tasks_per_node) if gang.tasks_per_node else None,
        )
        most = min((bound for bound in bounds if bound is not None), default=None)
        if most is None or (gang.most_nodes is not None and gang.most_nodes <= most):
            return False
        if self.tier_now(gang, partitions) is None:
            return False
        return self.tier_now(replace(gang, nodes_max=max(most, gang.nodes_min), nodes_open=False), partitions) is None

    def _counts_on_a_limit(self, gang: GangRequest, partitions: tuple[str, ...]) -> bool:
        """Return whether a partition may bar a gang by its MaxNodes, and the others alone would do worse."""
        if gang.most_nodes is None:
            return False
        known = self._asked(_When.EVER, gang, partitions)
        limits = {name: self._partitions[name].max_nodes_per_job for name in known}
        sure = tuple(
            name for name, limit in limits.items() if not _exceeds(gang, limit) or asks_beyond_nodes(gang, limit)
        )
        if len(sure) == len(known):
            return False
        views = (_When.NOW, _When.IN_SERVICE)
        return not sure or any(self._tier(when, gang, sure) != self._tier(when, gang, partitions) for when in views)

    def _can_run_out_of_gpus(self, gang: GangRequest, partitions: tuple[str, ...]) -> bool:
        """Return whether the first nodes can take all GPUs of a gang, where Slurm then has none for the others."""
        counted = gang.per_job or gang.per_task
        if gang.nodes_min < 2 or not counted or not self._snapshot.config.traits.first_nodes_take_all:
            return False
        offers = (self._offer(_When.NOW, gang, name) for name in self._asked(_When.NOW, gang, partitions))
        return any(offer is not None and offer.can_run_out(gang.nodes_min) for offer in offers)

    def _is_barred(self, gang: GangRequest, partitions: tuple[str, ...]) -> bool:
        """Return whether what a gang needs beside GPUs, CPUs and memory bars nodes that plans count on for it."""
        if not (gang.gres or gang.tmp_disk_mib):
            return False
        free = replace(gang, gres=(), tmp_disk_mib=0)
        for name in self._asked(_When.EVER, gang, partitions):
            with_all, with_fewer = self._offer(_When.EVER, free, name), self._offer(_When.EVER, gang, name)
            if (0 if with_all is None else len(with_all.rows)) != (0 if with_fewer is None else len(with_fewer.rows)):
                return True
        return False

    def _has_uncounted(self, gang: GangRequest) -> bool:
        """Return whether options can bar nodes unseen; those about threads bar none where each core has one."""
        return bool(gang.uncounted) and not (_THREADS.issuperset(gang.uncounted) and self._has_one_thread)

    @cached_property
    def _has_one_thread(self) -> bool:
        return all(node.threads_per_core == 1 for node in self._snapshot.nodes)

    def _tier(self, when: "_When", gang: GangRequest, partitions: tuple[str, ...]) -> LocalityTier | None:
        known, key = self._known[when].tiers, (self._number(gang), partitions)
        if key not in known:
            tiers = [self._tier_in(when, gang, name) for name in self._asked(when, gang, partitions)]
            known[key] = min((tier for tier in tiers if tier is not None), default=None)
        return known[key]

    def _number(self, gang: GangRequest) -> int:
        """Return a number for each distinct request; a shared object is compared with the others once."""
        numbers, numbered = self._shared.numbers, self._shared.numbered
        known = numbered.get(id(gang))
        if known is None:
            # Keeps a reference, so that no other request gets the same identity.
            known = numbered[id(gang)] = gang, numbers.setdefault(gang, len(numbers))
        return known[1]

    def _tier_ever(self, gang: GangRequest, partitions: tuple[str, ...]) -> LocalityTier | None:
        # More nodes in service never make a place worse, and there is none closer than a node.
        at_best = self._tier(_When.IN_SERVICE, gang, partitions) is LocalityTier.NODE
        return LocalityTier.NODE if at_best else self._tier(_When.EVER, gang, partitions)

    def _asked(self, when: "_When", gang: GangRequest, partitions: tuple[str, ...]) -> list[str]:
        known = [name for name in partitions if name in self._number_by_partition]
        if when is not _When.NOW:
            return known
        return [name for name in known if self._partitions[name].is_up and gang.gpus_known]

    def _tier_in(self, when: "_When", gang: GangRequest, partition: str) -> LocalityTier | None:
        """Find the closest tier at which the nodes of one partition hold the gang."""
        nodes_min, nodes_max = self._least_nodes(gang, partition), self._most_nodes(gang, partition)
        if nodes_max is not None and nodes_max < nodes_min:
            return None
        if asks_beyond_nodes(gang, self._partitions[partition].max_nodes_per_job):
            return None
        offer = self._offer(when, gang, partition)
        if offer is None:
            return None
        if offer.is_enough_on_one(nodes_min):
            return LocalityTier.NODE
        # Most of a long queue fits nowhere: the widest tier answers for all.
        if not offer.is_enough(nodes_min, nodes_max):
            return None
        switches = {LocalityTier.LEAF: self.table.leaf, LocalityTier.SPINE: self.table.spine}
        if self._component is not None:
            component = self._component[offer.rows]
            if (component != component[0]).any() and not offer.is_enough_together(component, nodes_min, nodes_max):
                return None
        together = (
            tier
            for tier, switch in switches.items()
            if offer.is_enough_together(switch[offer.rows], nodes_min, nodes_max)
        )
        return next(together, LocalityTier.CLUSTER)

    def _picked(self, offer: Offer, tier: LocalityTier, nodes_min: int, nodes_max: int | None) -> NDArray[np.intp]:
        """Pick nodes of an offer at a tier: of the nodes or switches that hold the gang, the one with least idle."""
        # Names of nodes settle ties, so that their order in the snapshot does not matter.
        idle, rank = self.table.gpus_idle[offer.rows].sum(axis=1), self.table.rank[offer.rows]
        if tier is LocalityTier.NODE:
            holding = np.flatnonzero(offer.holds_alone)
            return offer.rows[holding[np.lexsort((rank[holding], idle[holding]))[:1]]]
        group = {
            LocalityTier.LEAF: self.table.leaf,
            LocalityTier.SPINE: self.table.spine,
            LocalityTier.CLUSTER: np.zeros_like(self.table.leaf) if self._component is None else self._component,
        }[tier][offer.rows]
        # The groups in the order of what is idle in them, then of the first name.
        by_group = np.lexsort((rank, group))
        by_group = by_group[group[by_group] >= 0]
        firsts = np.flatnonzero(np.diff(group[by_group], prepend=-1))
        idle_in_group = np.add.reduceat(idle[by_group], firsts)
        first_in_group = by_group[firsts]
        parts = (
            offer.among(group == group[first])
            for first in first_in_group[np.lexsort((rank[first_in_group], idle_in_group))]
        )
        tightest = next(part for part in parts if part.pins_inside and part.is_enough(nodes_min, nodes_max))
        return tightest.first_enough(nodes_min, self.table.rank)

    def _fewest(self, gang: GangRequest, partitions: tuple[str, ...]) -> int | None:
        """Return what bisection over the node counts of a gang that names no node would."""
        counts = []
        for name in self._asked(_When.IN_SERVICE, gang, partitions):
            offer, most = self._offer(_When.IN_SERVICE, gang, name), self._most_nodes(gang, name)
            least = self._least_nodes(gang, name)
            fewest = None if offer is None or len(offer.rows) < least else offer.fewest()
            if fewest is not None and (most is None or max(fewest, least) <= most):
                counts.append(max(fewest, least))
        return min(counts, default=None)

    def _least_nodes(self, gang: GangRequest, partition: str) -> int:
        # Slurm gives every job of a partition at least its MinNodes.
        return max(gang.nodes_min, self._partitions[partition].min_nodes_per_job)

    def _most_nodes(self, gang: GangRequest, partition: str) -> int | None:
        limits = (gang.most_nodes, self._partitions[partition].max_nodes_per_job)
        return min((limit for limit in limits if limit is not None), default=None)

    def _offer(self, when: "_When", gang: GangRequest, partition: str) -> Offer | None:
        """Return what each node could give to the gang, once for gangs that differ only in node counts."""
        several = gang.per_task or gang.tasks >= max(2, gang.nodes_min)
        known = self._known[when]
        key = (
            partition,
            (gang.per_job, gang.per_node, gang.per_socket, gang.per_task),
            (gang.tasks if several else 1, gang.cpus, gang.cpus_per_gpu, gang.memory_mib_per_node, gang.exclusive),
            (gang.cpus_per_node, gang.tasks_per_node, gang.tmp_disk_mib, gang.gres, gang.only_beside, gang.features),
            (gang.required_nodes, gang.excluded_nodes, chooses_among_required(gang)),
        )
        if key not in known.offers:
            if partition not in known.sides:
                member = self.table.partition_member[self._number_by_partition[partition]]
                view = self._within_partition(known.view, partition)
                known.sides[partition] = PartitionOffer.of(self.table, member & self._joined, view)
            known.offers[key] = Offer.of(known.sides[partition], self._as_treated(gang, partition))
        return known.offers[key]

    def _as_treated(self, gang: GangRequest, partition: str) -> GangRequest:
        """Return a gang as a partition treats it: with whole nodes, or no more CPUs of each node than it gives."""
        treats = self._partitions[partition]
        if treats.gives_whole_nodes and not gang.exclusive:
            gang = replace(gang, exclusive=True)
        most = treats.max_cpus_per_node
        if most is None or gang.cpus_per_node <= most or not self._snapshot.config.traits.mincpus_cut_to_limit:
            return gang
        return replace(gang, cpus_per_node=most)

    def _within_partition(self, view: NodeView, partition: str) -> NodeView:
        """Return what nodes offer within the bound of a partition on the CPUs that its jobs hold on a node together."""
        most = self._partitions[partition].max_cpus_per_node
        if most is None:
            return view
        held = cpus_held(self._snapshot, self.table, partition) if view.promise else 0
        return replace(view, cpus=np.minimum(view.cpus, np.maximum(0, most - held)).astype(np.int32))

    @cached_property
    def _joined(self) -> Flags:
        """Return the nodes that jobs can start on at all: a tree starts none on a node that no switch joins."""
        if self._component is None:
            return np.ones_like(self.table.usable)
        return np.asarray(self._component >= 0)


def cpus_held(snapshot: Snapshot, table: NodeTable, partition: str) -> Counts:
    """Return the CPUs that the jobs of a partition can hold on each node, all of a job's on each: `(n_nodes,)`."""
    held = np.zeros(len(table.names), dtype=np.int64)
    for job in snapshot.jobs:
        if job.allocation is not None and not job.is_pending and partition in job.partitions:
            held[rows_of(table, job.allocation.nodes)] += job.gang.cpus
    return np.asarray(np.minimum(held, table.cpus_total - table.cpus_idle), dtype=np.int32)


def asks_beyond_nodes(gang: GangRequest, limit: int | None) -> bool:
    """Return whether a gang surely asks for more nodes than a partition gives to a job, which then starts none.

    Slurm holds the upper end of a range against the limit, however few nodes would do. Newer releases show the number
    of tasks as the most nodes of a job that leaves them open, and hold that against nothing.
    """
    return _exceeds(gang, limit) and (gang.nodes_min > (limit or 0) or gang.most_nodes != gang.tasks)


def _exceeds(gang: GangRequest, limit: int | None) -> bool:
    """Return whether the upper end of a gang's nodes is above a limit, as far as both are known."""
    return limit is not None and gang.most_nodes is not None and gang.most_nodes > limit


def _asks_for_tasks(gang: GangRequest) -> bool:
    """Whether a gang can have asked for its tasks: of those that Slurm makes of its nodes, only one counts in CPUs."""
    return gang.tasks > 1 and (gang.cpus >= gang.tasks or bool(gang.per_task))


def _restrict(doubts: tuple[Doubt, ...]) -> bool:
    return any(doubt is not Doubt.MEMORY for doubt in doubts)


class _When(IntEnum):
    """The nodes open to a gang: as they are, as if they were empty, and as if all were empty and in service."""

    NOW = auto()
    IN_SERVICE = auto()
    EVER = auto()
