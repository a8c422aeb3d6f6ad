"""Many parted clusters side by side, as learners see them: one decision of one agent in each."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.features.observe.graph import Floats32, Neighbours
from advisor.features.observe.known_models import KnownModels
from advisor.features.observe.pointer import CHOICE_COLUMNS
from advisor.predict.interference import InterferenceForecaster
from advisor.predict.neighbours import models_known_to
from advisor.sim.policies.learning import opened
from tools.train.places.network import Layout, Parts
from tools.train.places.parts import Decision, PartedCluster
from tools.train.places.rules import by_work
from tools.train.places.state_graph import model_rows_of
from tools.train.places.workload import Drawn, Scale, draw
from tools.train.slots import Bools, Integers

# More jobs than any episode has.
JOBS_MOST: Final = 1_000_000
# From the choice columns: what the interference model says.
_SLOWS: Final = [CHOICE_COLUMNS.index(name) for name in ("slows_me", "slows_others")]


class Outcome(NamedTuple):
    """What one action did in each of `n` clusters, `(n,)` each.

    `cost` is that of a gang that it started, `is_over` whether it did, in units of `PartedCluster.cost`.
    """

    cost: Floats32
    is_over: Bools
    done: Bools


@cache
def interference() -> KnownModels:
    """Return what the shipped model of interference knows."""
    return models_known_to(InterferenceForecaster.from_bundle(opened("interference")))


def parted(drawn: Drawn) -> PartedCluster:
    """Return the parted cluster of a workload before its first decision."""
    models = interference()
    return PartedCluster(drawn, models.neighbours, model_rows_of(drawn.trace, models))


def begun(seed: int, scale: Scale, *, agents: int | None = None) -> PartedCluster:
    """Return the parted cluster of a seed before its first decision; agents take short work first.

    With `agents`, the same workload is divided among that many.
    """
    drawn = draw(seed, scale)
    cluster = parted(drawn if agents is None else replace(drawn, agents=agents))
    cluster.order = by_work
    return cluster


class PlacesEnv:
    """`n` parted clusters; actions are the next server, an agent to forward to, or wait, which is the last.

    What an action costs is the time that its gang loses, waiting and on its place, and what it costs others
    (`PartedCluster.cost`).
    """

    def __init__(self, n: int, scale: Scale, layout: Layout, parts: Parts | None = None) -> None:
        """Make the arrays; `reset` begins the episodes."""
        self.n, self.scale, self.layout = n, scale, layout
        self.parts = parts or Parts()
        self.n_actions = layout.actions
        self.clusters: list[PartedCluster | None] = [None] * n
        self.decisions: list[Decision | None] = [None] * n
        self._seen = np.zeros((n, layout.numbers), np.float32)
        self._mask = np.zeros((n, self.n_actions), np.bool_)
        self._mask[:, -1] = True
        self.job = np.zeros(n, np.int64)
        self.time = np.zeros(n)
        self.begun = np.zeros(n, np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of one observation."""
        return (self.layout.numbers,)

    def __getstate__(self) -> dict[str, object]:
        """Keep what describes the episodes alone: a run begins them again where it goes on."""
        return {"n": self.n, "scale": self.scale, "layout": self.layout, "parts": self.parts}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def reset(self, seeds: Sequence[int], rows: Integers | None = None) -> None:
        """Begin the episodes of some seeds, in these rows or in all."""
        for row, seed in zip(range(self.n) if rows is None else rows.tolist(), seeds, strict=True):
            cluster = begun(seed, self.scale)
            self.clusters[row] = cluster
            self.decisions[row] = cluster.next_decision()
            self.begun[row] += 1
            self._look(row)

    def observe(self) -> Floats32:
        """Return the observations `(n, numbers)`."""
        return self._seen.copy()

    def mask(self) -> Bools:
        """Return the legal actions `(n, n_actions)`."""
        return self._mask.copy()

    def step(self, action: Integers) -> Outcome:
        """Take one action in each cluster."""
        cost, is_over, done = np.zeros(self.n, np.float32), np.zeros(self.n, np.bool_), np.zeros(self.n, np.bool_)
        for row, taken in enumerate(action.tolist()):
            cluster, decision = self.clusters[row], self.decisions[row]
            if cluster is None or decision is None:
                done[row] = True
                continue
            before_s = float(cluster.losses().sum()) if taken < self.layout.servers else 0.0
            if cluster.take(decision, self.layout.action(taken, cluster.size)):
                if taken < self.layout.servers:
                    cost[row], is_over[row] = cluster.cost(decision, before_s), True
                self.decisions[row] = cluster.next_decision()
                done[row] = self.decisions[row] is None
            self._look(row)
        return Outcome(cost=cost, is_over=is_over, done=done)

    def _look(self, row: int) -> None:
        """Write the observation and the mask of a row."""
        decision, cluster = self.decisions[row], self.clusters[row]
        self._seen[row], self._mask[row] = 0.0, False
        if decision is None or cluster is None:
            self._mask[row, -1] = True
            return
        # The same job of two episodes in a row has two numbers.
        self.job[row], self.time[row] = decision.row + self.begun[row] * JOBS_MOST, cluster.now / cluster.unit_s
        self.layout.packed(self._seen[row], **tensors_of(decision, cluster.neighbours, self.parts))
        self._mask[row] = mask_of(decision, self.layout)


def tensors_of(decision: Decision, neighbours: Neighbours, parts: Parts) -> dict[str, Floats32]:
    """Return the arrays of one observation by the names of `Seen`."""
    choice, graph = decision.choice.columns(), decision.graph
    if not parts.interference:
        choice[:, _SLOWS] = 0.0
    return {
        "slots": graph.slots,
        "servers": graph.servers,
        "leaf": graph.leaf.astype(np.float32),
        "leaves": graph.leaves,
        "choice": choice,
        "gang": decision.choice.gang_columns(neighbours),
        "own": decision.reports[decision.agent],
        "others": decision.reports,
    }


class Actions(Protocol):
    """How many actions there are, and how many of them are servers."""

    @property
    def servers(self) -> int:
        """The servers, which are the first actions."""

    @property
    def actions(self) -> int:
        """All actions."""


def mask_of(decision: Decision, layout: Actions) -> NDArray[np.bool_]:
    """Return the legal actions of a decision, `(n_actions,)`; a gang that has a server gets all that it needs."""
    mask = np.zeros(layout.actions, np.bool_)
    legal = decision.choice.legal
    mask[: len(legal)] = legal
    if not decision.choice.chosen:
        mask[layout.servers : layout.servers + len(decision.forwards)] = decision.forwards
        mask[-1] = decision.can_wait
    return mask


class Teacher:
    """Gives the action of a rule in each cluster; the rule counts agents after the servers of its part.

    In a share of the decisions about gangs, `waits`, it waits at random.
    """

    def __init__(self, rule: Callable[[Decision], int | None], waits: float, seed: int) -> None:
        """Take the rule, and the seed of its waits."""
        self._rule, self._waits, self._rng = rule, waits, np.random.default_rng([seed, 3])

    def __call__(self, env: PlacesEnv) -> Integers:
        """Return one action for each cluster."""
        actions = np.full(env.n, env.n_actions - 1, np.int64)
        idles = self._rng.random(env.n) < self._waits
        for row, decision in enumerate(env.decisions):
            action = None if decision is None else self._rule(decision)
            if decision is not None and not (idles[row] and decision.is_about_gang and decision.can_wait):
                actions[row] = env.layout.index(action, len(decision.choice.usable))
        return actions
