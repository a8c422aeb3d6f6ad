"""Builds the cluster as a graph in two levels: the GPUs inside each server, and the servers under leaf switches.

`graph_of` takes plain facts, which a snapshot and the simulator's arrays give alike. Level 1 is a table of fixed
degree: one slot for each GPU of a server, with what its gang does to the links that it shares. Level 2 is the servers,
and the leaf above each. Numbers are shares, logarithms and flags, so that a policy serves clusters of any size.
"""

from dataclasses import fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.features.columns import Columns

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]

SLOT_COLUMNS: Final = (
    "is_gpu",
    "is_free",
    "gang_gpus",
    "spans_nodes",
    "crosses_leaves",
    "pressure",
    "sensitivity",
    "left",
)
SERVER_COLUMNS: Final = ("free", "is_idle", "is_up", "gpus", "senders", "pressure")
LEAF_COLUMNS: Final = ("free", "idle", "crossing", "servers")
# A logarithm of seconds is 1 at about 28 hours.
_DAY_LOG: Final = np.log(1e5)
# Counts of GPUs and servers up to 2 ** 8 have logarithms up to 1.
_DOUBLINGS: Final = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers(Columns):
    """The servers, `(n_servers,)` each; `leaf` counts from 0, and `free` are GPUs that no gang holds."""

    gpus: Rows
    free: Rows
    is_up: Flags
    leaf: Rows

    @property
    def leaves(self) -> int:
        """The number of leaf switches."""
        return int(self.leaf.max()) + 1 if len(self.leaf) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Residents:
    """The running gangs, and their parts on servers; parts stand gang by gang, in the order of servers.

    `model` codes rows of the table of neighbours, its last row being a model that is not known.
    """

    gang: Rows  # (n_parts,): row of the gang
    server: Rows  # (n_parts,)
    held: Rows  # (n_parts,): GPUs
    gpus: Rows  # (n_gangs,)
    nodes: Rows  # (n_gangs,)
    model: Rows  # (n_gangs,)
    left_s: Floats  # (n_gangs,): NaN where not known

    def crosses(self, leaf: Rows) -> Flags:
        """Return whether each gang sits under several leaves, `(n_gangs,)`."""
        first, last = np.full(len(self.gpus), np.iinfo(np.intp).max), np.full(len(self.gpus), -1)
        np.minimum.at(first, self.gang, leaf[self.server])
        np.maximum.at(last, self.gang, leaf[self.server])
        return np.asarray(last > first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """What a gang adds to the run time of another on the same links, by model: `added[mine, other]`, at least 0.

    Pairs of models that were never measured have the pessimistic end of the forecast.
    """

    added: Floats  # (n_models + 1, n_models + 1)
    pressure: Floats  # (n_models + 1,): what a model adds to others on average
    sensitivity: Floats  # (n_models + 1,): what others add to a model on average

    @classmethod
    def of(cls, added: Floats) -> "Neighbours":
        """Return the table with its averages."""
        return cls(added=added, pressure=added.mean(axis=0), sensitivity=added.mean(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterGraph:
    """The observation of a cluster; `leaf` is the edge from each server to its leaf."""

    slots: Floats32  # (n_servers, n_slots, len(SLOT_COLUMNS))
    servers: Floats32  # (n_servers, len(SERVER_COLUMNS))
    leaf: Rows  # (n_servers,)
    leaves: Floats32  # (n_leaves, len(LEAF_COLUMNS))

    @property
    def member(self) -> Floats32:
        """Which servers each leaf has: 1 or 0, `(n_leaves, n_servers)`."""
        return np.asarray(np.arange(len(self.leaves))[:, None] == self.leaf, dtype=np.float32)

    def equals(self, other: "ClusterGraph") -> bool:
        """Return whether two graphs are equal to the bit."""
        return all(
            getattr(self, field.name).tobytes() == getattr(other, field.name).tobytes() for field in fields(self)
        )


def graph_of(servers: Servers, residents: Residents, neighbours: Neighbours) -> ClusterGraph:
    """Return the graph of a cluster."""
    crosses = residents.crosses(servers.leaf)
    return ClusterGraph(
        slots=_slots(servers, residents, neighbours, crosses),
        servers=_server_columns(servers, residents, neighbours),
        leaf=servers.leaf,
        leaves=_leaf_columns(servers, residents, crosses),
    )


def size_log(counts: Rows | Floats) -> Floats:
    """Return logarithms of counts: 0 for 1, 1 for 256."""
    return np.asarray(np.log2(np.maximum(counts, 1)) / _DOUBLINGS)


def time_log(seconds: Floats) -> Floats:
    """Return logarithms of times: 0 for none and for a time that is not known, 1 for about 28 hours."""
    return np.asarray(np.log1p(np.maximum(np.nan_to_num(seconds, nan=0.0, posinf=1e9), 0.0)) / _DAY_LOG)


def _slots(servers: Servers, residents: Residents, neighbours: Neighbours, crosses: Flags) -> Floats32:
    """Fill the GPUs of each server with its parts, one after the other, as Slurm shows no GPU by its number."""
    most = int(servers.gpus.max(initial=1))
    table = np.zeros((len(servers), most, len(SLOT_COLUMNS)), np.float32)
    table[:, :, 0] = np.arange(most) < servers.gpus[:, None]
    taken = np.bincount(residents.server, residents.held, minlength=len(servers))
    table[:, :, 1] = table[:, :, 0] * (np.arange(most) >= taken[:, None])
    order = np.lexsort((residents.gang, residents.server))
    gang = residents.gang[order].repeat(residents.held[order])
    server = residents.server[order].repeat(residents.held[order])
    first = np.searchsorted(server, np.arange(len(servers)))
    place = np.arange(len(server)) - first[server]
    is_seen = place < most
    gang, server, place = gang[is_seen], server[is_seen], place[is_seen]
    model = residents.model[gang]
    columns = (
        size_log(residents.gpus[gang]),
        residents.nodes[gang] > 1,
        crosses[gang],
        neighbours.pressure[model],
        neighbours.sensitivity[model],
        time_log(residents.left_s[gang]),
    )
    for column, values in enumerate(columns, start=2):
        table[server, place, column] = values
    return table


def _server_columns(servers: Servers, residents: Residents, neighbours: Neighbours) -> Floats32:
    sends = residents.nodes[residents.gang] > 1
    at, model = residents.server[sends], residents.model[residents.gang[sends]]
    senders = np.bincount(at, minlength=len(servers))
    pressure = np.bincount(at, neighbours.pressure[model], minlength=len(servers))
    columns = (
        servers.free / np.maximum(servers.gpus, 1),
        servers.free == servers.gpus,
        servers.is_up,
        servers.gpus / _DOUBLINGS,
        np.log1p(senders),
        pressure,
    )
    return np.stack(columns, axis=1).astype(np.float32)


def _leaf_columns(servers: Servers, residents: Residents, crosses: Flags) -> Floats32:
    count = servers.leaves
    size = np.bincount(servers.leaf, minlength=count)
    gpus = np.bincount(servers.leaf, servers.gpus, minlength=count)
    free = np.bincount(servers.leaf, servers.free * servers.is_up, minlength=count)
    idle = np.bincount(servers.leaf, (servers.free == servers.gpus) & servers.is_up, minlength=count)
    columns = (
        free / np.maximum(gpus, 1),
        idle / np.maximum(size, 1),
        np.log1p(crossing(servers, residents, crosses)),
        size_log(size),
    )
    return np.stack(columns, axis=1).astype(np.float32)


def crossing(servers: Servers, residents: Residents, crosses: Flags) -> Rows:
    """Return how many gangs send over the uplinks of each leaf, `(n_leaves,)`."""
    part = crosses[residents.gang]
    pairs = np.unique(residents.gang[part] * max(servers.leaves, 1) + servers.leaf[residents.server[part]])
    return np.bincount(pairs % max(servers.leaves, 1), minlength=servers.leaves).astype(np.intp)
