"""Chooses the servers of a gang one by one: the legal choices as columns, and the rule that chooses without a model.

The rule is best fit with least interference: few servers under one leaf, the tightest that hold the gang, and among
equally tight ones those where gangs slow each other least.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Final

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.features.observe.graph import (
    LEAF_COLUMNS,
    SERVER_COLUMNS,
    SLOT_COLUMNS,
    ClusterGraph,
    Flags,
    Floats,
    Floats32,
    Neighbours,
    Residents,
    Rows,
    Servers,
    size_log,
    time_log,
)
from advisor.features.observe.known_models import ServerOutlook

CHOICE_COLUMNS: Final = (
    "usable", "of_rest", "holds_rest", "is_tight", "slows_me", "slows_others", "leaf_of_rest", "leaf_holds_rest",
    "leaf_is_chosen", "leaf_crossing",
)  # fmt: skip
GANG_COLUMNS: Final = (
    "gpus", "fewest_nodes", "leaf_inflation", "spine_inflation", "run", "wait", "rest", "chosen", "pressure",
    "sensitivity",
)  # fmt: skip
REPORT_COLUMNS: Final = ("free", "idle", "largest_leaf", "demand", "queue", "gpus", "senders")
_COLUMNS: Final = (SLOT_COLUMNS, SERVER_COLUMNS, LEAF_COLUMNS, CHOICE_COLUMNS, GANG_COLUMNS, REPORT_COLUMNS)
# What names the observation that a policy for places was trained on.
FINGERPRINT: Final = hashlib.sha256(json.dumps(_COLUMNS).encode()).hexdigest()
MOST_DEMAND: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A pending gang; inflations are those of a place under one leaf, and under several, over its best place."""

    gpus: int
    fewest_nodes: int
    model: int
    leaf_inflation: float
    spine_inflation: float
    run_s: float
    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """What a gang would meet on each server, `(n_servers,)`: what it would add to others, and others to it."""

    slows_me: Floats
    slows_others: Floats


def interference_of(gang: Gang, servers: Servers, residents: Residents, neighbours: Neighbours) -> Interference:
    """Return the interference of a gang with those of each server that span servers, none if it fits one server."""
    none = np.zeros(len(servers))
    if gang.fewest_nodes <= 1:
        return Interference(slows_me=none, slows_others=none)
    sends = residents.nodes[residents.gang] > 1
    at, model = residents.server[sends], residents.model[residents.gang[sends]]
    return Interference(
        slows_me=_summed(at, neighbours.added[gang.model, model], len(servers)),
        slows_others=_summed(at, neighbours.added[model, gang.model], len(servers)),
    )


def _summed(rows: Rows, values: Floats, count: int) -> Floats:
    return np.bincount(rows, values, minlength=count).astype(np.float64)


@dataclass(slots=True, kw_only=True)
class Choice:
    """The servers that a gang has chosen so far; `usable` `(n_servers,)` are the GPUs that it could take of each."""

    gang: Gang
    usable: Rows
    leaf: Rows
    leaf_crossing: Rows  # (n_leaves,)
    interference: Interference
    chosen: list[int]
    taken: list[int]
    # What a performance model says of each server; None without one.
    outlook: ServerOutlook | None = None

    @property
    def rest(self) -> int:
        """The GPUs that are still missing."""
        return self.gang.gpus - sum(self.taken)

    @property
    def legal(self) -> Flags:
        """The servers that can be chosen next, `(n_servers,)`: none unless they hold the rest together."""
        open_ = self.usable > 0
        open_[self.chosen] = False
        return open_ if int(self.usable[open_].sum()) >= self.rest > 0 else np.zeros(len(open_), np.bool_)

    def choose(self, server: int) -> None:
        """Take what the gang can use of a server."""
        self.taken.append(int(min(self.usable[server], self.rest)))
        self.chosen.append(server)

    def per_leaf(self, legal: Flags) -> Rows:
        """Return the GPUs that are usable under each leaf, `(n_leaves,)`."""
        gpus = np.bincount(self.leaf, self.usable * legal, minlength=len(self.leaf_crossing))
        return np.asarray(gpus, dtype=np.intp)

    def columns(self) -> Floats32:
        """Return the numbers behind each server as the next choice, `(n_servers, len(CHOICE_COLUMNS))`."""
        rest, legal = max(self.rest, 1), self.legal
        under = self.per_leaf(legal)[self.leaf]
        chosen = np.isin(self.leaf, self.leaf[self.chosen])
        columns = (
            size_log(self.usable + 1),
            np.minimum(self.usable / rest, 2.0),
            self.usable >= rest,
            self.usable == rest,
            self.interference.slows_me,
            self.interference.slows_others,
            np.minimum(under / rest, 4.0),
            under >= rest,
            chosen,
            np.log1p(self.leaf_crossing[self.leaf]),
        )
        return np.stack(columns, axis=1).astype(np.float32)

    def gang_columns(self, neighbours: Neighbours) -> Floats32:
        """Return the numbers of the gang, `(len(GANG_COLUMNS),)`."""
        gang = self.gang
        return np.array(
            [
                size_log(np.array(gang.gpus)),
                size_log(np.array(gang.fewest_nodes)),
                np.log(min(gang.leaf_inflation, 1e3)),
                np.log(min(gang.spine_inflation, 1e3)),
                time_log(np.array(gang.run_s)),
                time_log(np.array(gang.wait_s)),
                self.rest / gang.gpus,
                size_log(np.array(len(self.chosen) + 1)),
                neighbours.pressure[gang.model],
                neighbours.sensitivity[gang.model],
            ],
            np.float32,
        )


def best_fit(choice: Choice) -> int | None:
    """Return the next server by the rule, None where the gang does not fit; ties go to the first."""
    legal = choice.legal
    if not legal.any():
        return None
    rest, usable = choice.rest, choice.usable
    slows = choice.interference.slows_me + choice.interference.slows_others
    holds = legal & (usable >= rest)
    if holds.any():
        near = holds & np.isin(choice.leaf, choice.leaf[choice.chosen])
        return _first(near if near.any() else holds, (usable, slows))
    under = choice.per_leaf(legal)
    leaves = under >= rest
    if leaves.any():
        stays = leaves[choice.leaf] & np.isin(choice.leaf, choice.leaf[choice.chosen])
        return _first(legal & (stays if stays.any() else leaves[choice.leaf]), (-usable, under[choice.leaf], slows))
    begun = np.isin(choice.leaf, choice.leaf[choice.chosen]).astype(np.intp)
    return _first(legal, (-begun, -under[choice.leaf], choice.leaf, -usable, slows))


def _first(among: Flags, keys: tuple[Floats | Rows, ...]) -> int:
    """Return the server with the least first key, among equals the least second key, and so on."""
    rows = np.flatnonzero(among)
    for key in keys:
        values = key[rows]
        rows = rows[values == values.min()]
    return int(rows[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """What an agent sees besides the gang: the graph of its part, its report, and what models add to each other."""

    graph: ClusterGraph
    report: Floats32  # (len(REPORT_COLUMNS),)
    neighbours: Neighbours


def choose_all(choice: Choice, next_server: Callable[[Choice], int | None] = best_fit) -> bool:
    """Choose servers until the gang has its GPUs; return whether it has, False if it is left to Slurm.

    `next_server` gives the next server of a choice, None to leave the gang to Slurm; by default it is the rule.
    """
    while choice.rest > 0:
        server = next_server(choice)
        if server is None or not choice.legal[server]:
            return False
        choice.choose(server)
    return True


def report_of(servers: Servers, residents: Residents, queue: int, demand: int) -> Floats32:
    """Return the report of a part, `(len(REPORT_COLUMNS),)`; `queue` jobs wait in it for `demand` GPUs."""
    gpus = int(servers.gpus.sum())
    per_leaf = np.bincount(servers.leaf, servers.free, minlength=max(servers.leaves, 1))
    senders = np.count_nonzero(residents.nodes[residents.gang] > 1)
    columns = (
        servers.free.sum() / max(gpus, 1),
        (servers.free == servers.gpus).mean() if len(servers) else 0.0,
        per_leaf.max() / max(gpus / max(servers.leaves, 1), 1.0),
        min(demand / max(gpus, 1), MOST_DEMAND),
        float(size_log(np.array(queue + 1))),
        float(size_log(np.array(gpus))),
        senders / max(len(servers), 1),
    )
    return np.array(columns, np.float32)
