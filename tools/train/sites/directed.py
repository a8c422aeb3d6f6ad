"""Explores at a simulated site where the performance model may be wrong, within a bound on what that costs.

Gangs on one server are tried as well, on servers of another GPU type.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from advisor.features.observe.pointer import BestFit, Choice, choose_all
from tools.train.places.parts import Decision
from tools.train.places.rules import Decide
from tools.train.sites.cluster import SiteCluster
from tools.train.sites.safe_places import Prospect, Surroundings, best_try, prospect_of
from tools.train.sites.subspaces import Subspaces

RATIO: Final = 0.05
SLOWDOWN: Final = 0.15
DRAWN: Final = 8


@dataclass(slots=True)
class Directed:
    """Replaces the places of a policy by others now and then; `explored_gpu_s` of `held_gpu_s` went into that."""

    cluster: SiteCluster
    decide_by: Decide
    seed: int
    subspaces: Subspaces = field(default_factory=Subspaces)
    explored_gpu_s: float = 0.0
    tries: int = 0
    _plan: list[int] = field(default_factory=list)
    _signatures: dict[int, str] = field(default_factory=dict)

    def decide(self, decision: Decision) -> int | None:
        """Return the next server: that of the policy, or of the place that is tried."""
        choice = decision.choice
        if choice.chosen and self._plan:
            return self._plan.pop(0)
        self._plan.clear()
        first = self.decide_by(decision)
        if choice.chosen or first is None or first >= len(choice.usable) or choice.gang.gpus < 2:
            return first
        own = self._rolled_out(decision, first)
        if own is None:
            return first
        prospects = list(self._prospects(decision, own))
        best = 0
        gpu_s = choice.gang.gpus * choice.gang.run_s * 2.0
        if self.explored_gpu_s + gpu_s <= RATIO * self.held_gpu_s():
            safe = [one for rank, one in enumerate(prospects) if rank == 0 or one.keeps(SLOWDOWN)]
            unsure = np.array([one.unsure for one in safe])
            utilities = self.subspaces.utilities([one.signature for one in safe], unsure)
            best = best_try(safe, SLOWDOWN, utilities, self.subspaces.allowance.kappa)
            prospects = safe
        chosen = prospects[best]
        self._signatures[decision.row] = chosen.signature
        if best == 0:
            return first
        self.tries += 1
        self.explored_gpu_s += gpu_s
        self._plan = list(chosen.place)
        return self._plan.pop(0)

    def held_gpu_s(self) -> float:
        """Return the GPU-seconds that jobs have held so far."""
        return float(self.cluster.state.jobs["attained_gpu_s"].sum())

    def learn(self, rows: Sequence[int], residual: np.ndarray) -> None:
        """Count what ended jobs showed, by the signatures of their places; residuals are in standard deviations."""
        for row, value in zip(rows, residual.tolist(), strict=True):
            if row in self._signatures:
                self.subspaces = self.subspaces.updated(self._signatures.pop(row), float(value))

    def _rolled_out(self, decision: Decision, first: int) -> Choice | None:
        """Return the choice that the policy would make in full."""
        choice = replace(decision.choice, chosen=[], taken=[])
        tried = replace(decision, choice=choice)
        server: int | None = first
        while server is not None and server < len(choice.usable):
            choice.choose(server)
            if choice.rest <= 0:
                return choice
            server = self.decide_by(tried)
        return None

    def _prospects(self, decision: Decision, own: Choice) -> Iterator[Prospect]:
        cluster, gang = self.cluster, decision.choice.gang
        residents, graph, crossing = cluster.view(decision.agent)
        around = Surroundings(
            speeds=cluster.speeds,
            servers=replace(cluster.servers, free=cluster.state.nodes["gpus_free"].astype(np.intp), leaf=graph.leaf),
            residents=residents,
            types=cluster.types,
            leaf_crossing=crossing,
            protected=np.zeros(len(residents.gpus), np.bool_),
        )
        seen: set[tuple[int, ...]] = set()
        for place, taken in self._places(decision, own):
            key = tuple(sorted(place))
            if key not in seen:
                seen.add(key)
                yield prospect_of(around, gang, place, taken, own.chosen)

    def _places(self, decision: Decision, own: Choice) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Yield places with the GPUs taken of each server: the policy's, best fit, and some in a drawn order."""
        yield tuple(own.chosen), tuple(own.taken)
        fresh = replace(decision.choice, chosen=[], taken=[])
        if choose_all(fresh, BestFit()):
            yield tuple(fresh.chosen), tuple(fresh.taken)
        rng = np.random.default_rng([self.seed, decision.row])
        for _ in range(DRAWN):
            fresh = replace(decision.choice, chosen=[], taken=[])
            order = rng.permutation(len(fresh.usable))
            for server in order[np.argsort(-fresh.usable[order], kind="stable")].tolist():
                if fresh.rest > 0 and fresh.usable[server] > 0:
                    fresh.choose(server)
            if fresh.rest <= 0 and len(fresh.chosen) <= len(own.chosen):
                yield tuple(fresh.chosen), tuple(fresh.taken)
