"""Chooses, for a gang that a policy has placed, another place that teaches more and slows no job beyond a bound.

A place is safe where the lower confidence bound of the relative speed of every affected job is within the bound: of the
gang, relative to the place that the policy chose; of every gang that sends from one of its servers, relative to the
time without it. What the performance model says nothing of is never tried: links between leaf switches that others use.
The rules are our own interpretation of directed exploration.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.features.observe.graph import Flags, Floats, Residents, Rows, Servers
from advisor.features.observe.pointer import Gang
from advisor.features.observe.site_speeds import SiteSpeeds
from tools.train.sites.subspaces import Signature, share_of, span_of

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
