"""Defines the topology of a cluster, and how close nodes are."""

from collections.abc import Iterable
from enum import IntEnum, StrEnum

from advisor.domain.dataclass import dataclass


class LocalityTier(IntEnum):
    """How close a gang sits; smaller is closer."""

    NODE = 0
    LEAF = 1
    SPINE = 2
    CLUSTER = 3


class TopologyKind(StrEnum):
    """What Slurm's topology plugin describes."""

    TREE = "tree"
    FLAT = "flat"
    BLOCK = "block"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A switch of a tree (level 0 is a leaf) or a block of a block topology, with every node below it."""

    name: str
    level: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The switches or blocks of a cluster, sorted by level and name; none for a flat cluster."""

    kind: TopologyKind
    switches: tuple[Switch, ...] = ()

    @property
    def leaves(self) -> tuple[Switch, ...]:
        """The leaf switches, or the blocks."""
        return tuple(switch for switch in self.switches if switch.level == 0)

    def tier_of(self, nodes: Iterable[str]) -> LocalityTier:
        """Return the smallest tier that holds all of `nodes`."""
        wanted = set(nodes)
        if len(wanted) <= 1:
            return LocalityTier.NODE
        holding = [switch.level for switch in self.switches if wanted.issubset(switch.nodes)]
        if not holding:
            return LocalityTier.CLUSTER
        return LocalityTier.LEAF if min(holding) == 0 else LocalityTier.SPINE
