"""Explores at a simulated site where the performance model may be wrong, within a bound on what that costs.

For a gang that a policy has placed, another place is chosen that teaches more and slows no job beyond a bound. A place
is safe where the lower confidence bound of the relative speed of every affected job is within the bound: of the gang,
relative to the place that the policy chose; of every gang that sends from one of its servers, relative to the time
without it. What the performance model says nothing of is never tried: links between leaf switches that others use.
Gangs on one server are tried as well, on servers of another GPU type.

What was tried is counted by what sends from the same servers and where. Yang et al. (IEEE TCC 2023) explore
"combinatorial subspaces where the performance model may be inaccurate", and publish no more than that. Signatures,
score, and the test for shifts are our own interpretation.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from advisor.features.observe.graph import Flags, Floats, Residents, Rows, Servers
from advisor.features.observe.pointer import BestFit, Choice, Gang, choose_all
from advisor.features.observe.site_speeds import SiteSpeeds
from tools.train.gang_rules import Decide
from tools.train.learnt_site import LearntSite
from tools.train.parted_cluster import GangDecision

MOST_SIGNATURES: Final = 4096
# The part of a mean that one more residual leaves as it was.
KEPT: Final = 0.9
# Weight of a low count beside those of disagreement and residual.
COUNT_WEIGHT: Final = 0.5
# Model classes that a signature names; further ones are counted.
_MOST_NAMED: Final = 6
# Page-Hinkley: the rise of the mean that is tolerated, and the sum of what is above it that counts as a shift.
# Residuals are absolute and in standard deviations, about 0.8 in the mean where the model is right, and capped.
DELTA: Final = 0.25
THRESHOLD: Final = 15.0
LARGEST_RESIDUAL: Final = 5.0
# Residuals whose mean is the standard against which later ones are held.
FIRST_RESIDUALS: Final = 16
SHARES: Final = ("quarter", "half", "part", "whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The combination that a placement tries: what sends from the most loaded server, and the kind of place.

    `classes` are model classes, that of the gang among them; `share` is the gang's share of the GPUs of that server.
    """

    classes: tuple[str, ...]
    span: str
    share: str
    gpu_type: str

    @property
    def text(self) -> str:
        """The key under which it is counted: `bert+gpt2|one leaf|half|a100`."""
        named = sorted(_word(name) for name in self.classes)
        more = [f"{len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
        return "|".join(["+".join(named[:_MOST_NAMED] + more), self.span, self.share, _word(self.gpu_type)])


def span_of(servers: int, leaves: int) -> str:
    """Return the span of a gang on some servers under some leaf switches."""
    if servers <= 1:
        return "one server"
    return "one leaf" if leaves <= 1 else "several leaves"


def share_of(gpus: int, of_server: int) -> str:
    """Return the class of a gang's share of the GPUs of a server."""
    ratio = gpus / max(of_server, 1)
    if ratio >= 1.0:
        return "whole"
    return "quarter" if ratio <= 0.25 else "half" if ratio <= 0.5 else "part"


def _word(name: str) -> str:
    return name.replace("|", " ").replace("+", " ").strip() or "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHinkley:
    """The test of Page and Hinkley for a rise of the mean of residuals."""

    count: int = 0
    mean: float = 0.0
    rise: float = 0.0
    least: float = 0.0

    def updated(self, residual: float) -> "PageHinkley":
        """Return the test after one more residual."""
        count = self.count + 1
        mean = self.mean + (residual - self.mean) / count
        rise = self.rise + residual - mean - DELTA
        return PageHinkley(count=count, mean=mean, rise=rise, least=min(self.least, rise))

    @property
    def has_shifted(self) -> bool:
        """Whether the mean has risen."""
        return self.rise - self.least > THRESHOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class TryAllowance:
    """How much a try is worth now: all at first and after a shift, less as residuals fall below the first ones."""

    test: PageHinkley = field(default_factory=PageHinkley)
    first: float = 0.0
    recent: float = 0.0

    def updated(self, residual: float) -> "TryAllowance":
        """Return the allowance after one more absolute residual, in standard deviations; a shift renews it."""
        size = min(abs(residual), LARGEST_RESIDUAL)
        test = self.test.updated(size)
        if test.has_shifted:
            return TryAllowance()
        is_early = test.count <= FIRST_RESIDUALS
        recent = size if test.count == 1 else KEPT * self.recent + (1.0 - KEPT) * size
        return TryAllowance(test=test, first=test.mean if is_early else self.first, recent=recent)

    @property
    def kappa(self) -> float:
        """The weight of what a try can teach, from 0 to 1."""
        if self.test.count <= FIRST_RESIDUALS or self.first <= 0.0:
            return 1.0
        return min(1.0, self.recent / self.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subspace:
    """What is known of one signature: how often it was seen, and the mean of its squared residuals."""

    count: int = 0
    squared: float = 0.0

    def updated(self, residual: float) -> "Subspace":
        """Return it after one more residual, in standard deviations."""
        size = min(abs(residual), LARGEST_RESIDUAL) ** 2
        return Subspace(
            count=self.count + 1, squared=size if not self.count else KEPT * self.squared + (1.0 - KEPT) * size
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subspaces:
    """What was seen of each signature, `total` placements in all, and how much a try is worth now."""

    seen: Mapping[str, Subspace] = field(default_factory=dict)
    total: int = 0
    allowance: TryAllowance = field(default_factory=TryAllowance)

    def updated(self, signature: str, residual: float) -> "Subspaces":
        """Return them after one more placement; beyond the bound, the signature seen least often is dropped."""
        if not math.isfinite(residual):
            return self
        seen = {**self.seen, signature: self.of(signature).updated(residual)}
        if len(seen) > MOST_SIGNATURES:
            del seen[min((name for name in seen if name != signature), key=lambda name: (seen[name].count, name))]
        return Subspaces(seen=seen, total=self.total + 1, allowance=self.allowance.updated(residual))

    def of(self, signature: str) -> Subspace:
        """Return what was seen of a signature."""
        return self.seen.get(signature, Subspace())

    def utilities(self, signatures: Sequence[str], disagreement: Floats) -> Floats:
        """Return what a try of each signature can teach, `(n,)`; `disagreement` `(n,)` are variances of log speeds.

        A signature that was never seen counts with the mean residual of the others.
        """
        here = [self.of(signature) for signature in signatures]
        counts = np.array([one.count for one in here], np.float64)
        squared = np.array([one.squared for one in here], np.float64)
        known = counts > 0
        residual = np.where(known, squared, squared[known].mean() if known.any() else 0.0)
        rare = np.sqrt(np.log(max(self.total, 1)) / (1.0 + counts))
        utility: Floats = _standardised(disagreement) + _standardised(residual) + COUNT_WEIGHT * rare
        return utility


def _standardised(values: Floats) -> Floats:
    """Return values less their mean, in their standard deviations; zeros where they are all alike."""
    spread = float(values.std()) if len(values) else 0.0
    return (values - values.mean()) / spread if spread > 1e-12 else np.zeros(len(values))


# One-sided, 95 %.
Z: Final = 1.64
# The standard deviation of the logarithm of the weight of a place: the tables hold no variance of it, so that it is the
# spread over sites of the prior (`fit.performance_fit.Spreads`: 0.5 for all models and 0.5 for each).
PLACE_SPREAD: Final = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The servers and running gangs around a gang that is placed, and what a performance model says of them.

    `types` `(n_servers,)` code GPU types, and `leaf_crossing` `(n_leaves,)` counts the gangs that send over the uplinks
    of a leaf. `protected` `(n_gangs,)` are running gangs that no try can affect.
    """

    speeds: SiteSpeeds
    servers: Servers
    residents: Residents
    types: Rows
    leaf_crossing: Rows
    protected: Flags

    def load(self, gang: Gang) -> Floats:
        """Return the inflation that running gangs add to a gang on each server, `(n_servers,)`."""
        return self._summed(self.speeds.neighbours.added[gang.model])

    def unsure(self, gang: Gang) -> Floats:
        """Return the variance of the logarithm of its speed that comes of that, `(n_servers,)`."""
        return self._summed(self.speeds.added_variance[gang.model])

    def affected(self, place: Rows) -> Rows:
        """Return the running gangs that send from one of some servers."""
        residents = self.residents
        sends = np.isin(residents.server, place) & (residents.nodes[residents.gang] > 1)
        return np.unique(residents.gang[sends])

    def _summed(self, by_model: Floats) -> Floats:
        residents = self.residents
        sends = residents.nodes[residents.gang] > 1
        values = by_model[residents.model[residents.gang[sends]]]
        return np.bincount(residents.server[sends], values, minlength=len(self.servers)).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What a place holds in store: `lowest` is the least lower bound of the logarithm of a relative speed.

    `loss` is the expected loss of time of the gang and of others, in run times of the gang; `unsure` the variance of
    the logarithm of the gang's speed there; `affected` the running gangs that it would slow.
    """

    place: tuple[int, ...]
    signature: str
    lowest: float
    loss: float
    unsure: float
    affected: tuple[int, ...]
    is_open: bool

    def keeps(self, slowdown: float) -> bool:
        """Return whether every affected job keeps its speed but for a share `slowdown`."""
        return self.is_open and bool(self.lowest >= np.log1p(-slowdown))


def prospect_of(
    around: Surroundings, gang: Gang, place: Sequence[int], taken: Sequence[int], chosen: Sequence[int]
) -> Prospect:
    """Return what a place holds in store; `taken` are its GPUs by server, `chosen` what the policy chose."""
    rows, own = np.array(place, np.intp), np.array(chosen, np.intp)
    load, unsure = around.load(gang), around.unsure(gang)
    is_own = set(place) == set(chosen)
    mean, low = (0.0, 0.0) if is_own else _own_speed(around, gang, rows, own, load, unsure)
    others = around.affected(rows)
    model = around.residents.model[others]
    added = around.speeds.neighbours.added[model, gang.model]
    # The slowest server of a gang is slowed by what is added there at most, whatever else is beside it.
    lows = -np.log1p(added) - Z * np.sqrt(around.speeds.added_variance[model, gang.model])
    left_s = np.nan_to_num(around.residents.left_s[others], nan=gang.run_s)
    together = np.minimum(left_s, gang.run_s) / max(gang.run_s, 1.0)
    worst = int(rows[load[rows].argmax()])
    speed_variance = around.speeds.speed_variance[gang.model, around.types[rows]]
    return Prospect(
        place=tuple(place),
        signature=_signature(around, gang, rows, worst, taken[list(place).index(worst)]).text,
        # NumPy's minimum, which what is not a number does not pass.
        lowest=float(np.min([low, *lows])),
        loss=float(np.expm1(max(-mean, 0.0)) + (added * together).sum()),
        unsure=float(speed_variance.max() + unsure[worst]),
        affected=tuple(others.tolist()),
        is_open=is_own or (not around.protected[others].any() and _uplinks_open(around, rows, own)),
    )


def best_try(prospects: Sequence[Prospect], slowdown: float, utilities: Floats, kappa: float) -> int:
    """Return the prospect with the best value, the first among equals; the first one is the policy's own choice.

    A loss as large as the bound weighs as much as one standard deviation of what a try can teach.
    """
    values = np.array([-prospect.loss for prospect in prospects]) / slowdown
    return int(np.argmax(values + kappa * utilities))


def _own_speed(
    around: Surroundings, gang: Gang, place: Rows, chosen: Rows, load: Floats, unsure: Floats
) -> tuple[float, float]:
    """Return mean and lower bound of the logarithm of a gang's speed on a place, relative to the chosen one.

    What both have in common cancels: the GPU type, and the neighbours of a server that is the most loaded of both.
    """
    speed, variance = around.speeds.log_speed[gang.model], around.speeds.speed_variance[gang.model]
    types, before = np.unique(around.types[place]), around.types[chosen]
    slowest = int(before[speed[before].argmin()])
    by_type = speed[types] - speed[slowest]
    type_variance = np.where(types == slowest, 0.0, variance[types] + variance[slowest])
    most = int(chosen[load[chosen].argmax()])
    beside = np.log1p(load[most]) - np.log1p(load[place])
    beside_variance = np.where(place == most, 0.0, unsure[place] + unsure[most])
    farther = _farther(around, gang, place, chosen)
    means = by_type[:, None] + beside[None, :] - farther
    deviations = np.sqrt(type_variance[:, None] + beside_variance[None, :] + (PLACE_SPREAD * farther) ** 2)
    return float(means.min()), float((means - Z * deviations).min())


def _farther(around: Surroundings, gang: Gang, place: Rows, chosen: Rows) -> float:
    """Return the logarithm by which the span of a place slows a gang more than that of the chosen one."""
    inflation = [
        np.log(gang.spine_inflation if _leaves(around, rows) > 1 else gang.leaf_inflation) for rows in (place, chosen)
    ]
    return float(around.speeds.place_weight[gang.model] * (inflation[0] - inflation[1]))


def _uplinks_open(around: Surroundings, place: Rows, chosen: Rows) -> bool:
    """Return whether a gang shares no uplink with others on a place that it would not share on the chosen one."""
    if _leaves(around, place) <= 1:
        return True
    leaves = np.unique(around.servers.leaf[place])
    same = np.isin(leaves, around.servers.leaf[chosen]) if _leaves(around, chosen) > 1 else np.zeros(len(leaves), bool)
    return not (around.leaf_crossing[leaves[~same]] > 0).any()


def _leaves(around: Surroundings, rows: Rows) -> int:
    return len(np.unique(around.servers.leaf[rows]))


def _signature(around: Surroundings, gang: Gang, place: Rows, worst: int, gpus: int) -> Signature:
    names, types = (*around.speeds.models, "other"), (*around.speeds.gpu_types, "other")
    here = around.residents.model[around.affected(np.array([worst]))].tolist()
    return Signature(
        classes=tuple(names[model] for model in (*here, gang.model)),
        span=span_of(len(place), _leaves(around, place)),
        share=share_of(gpus, int(around.servers.gpus[worst])),
        gpu_type=types[int(around.types[worst])],
    )


RATIO: Final = 0.05
SLOWDOWN: Final = 0.15
DRAWN: Final = 8


@dataclass(slots=True)
class Directed:
    """Replaces the places of a policy by others now and then; `explored_gpu_s` of `held_gpu_s` went into that."""

    cluster: LearntSite
    decide_by: Decide
    seed: int
    subspaces: Subspaces = field(default_factory=Subspaces)
    explored_gpu_s: float = 0.0
    tries: int = 0
    _plan: list[int] = field(default_factory=list)
    _signatures: dict[int, str] = field(default_factory=dict)

    def decide(self, decision: GangDecision) -> int | None:
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

    def _rolled_out(self, decision: GangDecision, first: int) -> Choice | None:
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

    def _prospects(self, decision: GangDecision, own: Choice) -> Iterator[Prospect]:
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

    def _places(self, decision: GangDecision, own: Choice) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
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
