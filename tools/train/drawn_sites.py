"""Draws sites: GPU types, network, and how the models of users behave there; and what changes in the middle of a run.

A site departs from what was measured elsewhere: each model sends more or less, presses its neighbours more or less, and
is faster or slower on a GPU type than its profile says. How far is drawn from a family; whole families are held out of
the training. Sizes and run times of jobs are those of `tools.train.drawn_gangs.drawn_trace`. All of it is ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from advisor.sim.cluster import Cluster, Network, NodeGroup
from advisor.sim.profiles import NEUTRAL, Profiles, load_profiles
from advisor.sim.traces.sampling import OPEN, fill
from advisor.sim.traces.trace import Trace
from tools.train.drawn_gangs import BELIEF_SPREAD, GPUS_PER_NODE, LONGEST_S, MIXES, SHORTEST_S, drawn_trace


class Regime(StrEnum):
    """How models behave next to what was measured of them."""

    MEASURED = "measured"  # close to it
    DRIFTED = "drifted"  # each model on its own
    EXCHANGED = "exchanged"  # models behave as others were measured
    HEAVY = "heavy"  # drifted, and everything sends twice as much


class Change(StrEnum):
    """What changes before the last jobs are submitted."""

    NONE = "nothing"
    MODELS = "model mix"  # other models, and those behave differently
    LOAD = "load"
    TYPES = "GPU type"  # models speed up and slow down by type
    NETWORK = "topology"  # the network is four times as slow
    GRADUAL = "gradual"  # behaviour drifts over the whole second half


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFamily:
    """Where sites are drawn from; loads are drawn between the two of the pair."""

    gpu_types: Sequence[tuple[str, ...]]
    nic_gbps: Sequence[float]
    leaf_servers: Sequence[int]
    oversubscription: Sequence[float]
    regimes: Sequence[Regime]
    mixes: Sequence[str]
    load_ratio: tuple[float, float]
    servers: int = 16
    jobs_per_gpu: float = 2.0


TRAINING: Final = SiteFamily(
    gpu_types=(("v100",), ("v100", "t4"), ("v100", "a100"), ("t4", "v100", "a100"), ("k80", "v100")),
    nic_gbps=(25.0, 50.0, 100.0),
    leaf_servers=(4, 8),
    oversubscription=(1.0, 2.0, 4.0),
    regimes=(Regime.MEASURED, Regime.DRIFTED, Regime.EXCHANGED),
    mixes=("philly",),
    load_ratio=(0.6, 0.9),
)
# No set of GPU types, network or mix of jobs of the training, and a regime that it has not.
HELD_OUT: Final = SiteFamily(
    gpu_types=(("p100", "a40"), ("k80", "p100", "a100"), ("t4", "a40", "a100"), ("p100",)),
    nic_gbps=(40.0,),
    leaf_servers=(16,),
    oversubscription=(3.0,),
    regimes=(Regime.HEAVY, Regime.DRIFTED),
    mixes=("helios",),
    load_ratio=(0.7, 1.0),
    jobs_per_gpu=9.0,
)
# Spreads of the logarithms of what models send, how they press neighbours, and their speeds on GPU types.
DRIFT: Final[Mapping[Regime, tuple[float, float, float]]] = {
    Regime.MEASURED: (0.2, 0.2, 0.1),
    Regime.DRIFTED: (0.8, 0.8, 0.35),
    Regime.EXCHANGED: (0.2, 0.2, 0.35),
    Regime.HEAVY: (0.8, 0.8, 0.35),
}
# How many jobs come after a change; of fewer than 800, five of eight.
AFTER: Final = 500
_TYPE_DRIFT: Final = 0.15
_HEAVY: Final = np.log(2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSite:
    """A workload and the cluster that it runs on; `after` is how models behave once `change` has set in.

    `change_time` is when that begins, infinite without a change. `believed_s` `(n_jobs,)` are the run times that are
    forecast. The first GPU type is the one that run times refer to.
    """

    seed: int
    trace: Trace
    cluster: Cluster
    believed_s: np.ndarray
    before: Profiles
    after: Profiles
    change: Change
    change_time: float

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """The GPU types of the nodes, in their order."""
        return self.cluster.gpu_types


def draw_site(seed: int, family: SiteFamily, change: Change = Change.NONE, *, jobs: int | None = None) -> DrawnSite:
    """Return the site of a seed with its workload, of `jobs` if not as many as the family has."""
    rng = np.random.default_rng([seed, 21])
    types = family.gpu_types[int(rng.integers(len(family.gpu_types)))]
    leaf = min(int(rng.choice(family.leaf_servers)), family.servers)
    cluster = _cluster(rng, family, types, leaf)
    regime = family.regimes[int(rng.integers(len(family.regimes)))]
    before = behaving(rng, regime)
    after = {
        Change.TYPES: lambda: _other_types(rng, before, types),
        Change.MODELS: lambda: behaving(rng, regime),
        Change.GRADUAL: lambda: behaving(rng, regime),
    }.get(change, lambda: before)()
    own = np.random.default_rng([seed, 22])
    mix = MIXES[str(own.choice(list(family.mixes)))]
    gpus = family.servers * GPUS_PER_NODE
    count = jobs or round(family.jobs_per_gpu * gpus)
    load_ratio = own.uniform(*family.load_ratio) * _mean_speed(cluster)
    trace = drawn_trace(seed, own, count, gpus, gpus, mix, load_ratio)
    trace, change_time = _changed(trace, change, own)
    trace = _with_models(trace, seed, own, change_time if change is Change.MODELS else np.inf)
    error = np.exp(BELIEF_SPREAD * own.standard_normal(count))
    believed_s = np.clip(trace.jobs["run_time_s"] * error, SHORTEST_S, LONGEST_S)
    return DrawnSite(
        seed=seed,
        trace=trace,
        cluster=cluster,
        believed_s=believed_s,
        before=before,
        after=after,
        change=change,
        change_time=change_time,
    )


def behaving(rng: np.random.Generator, regime: Regime) -> Profiles:
    """Return how models behave at a site, drawn around their profiles."""
    shipped = load_profiles()
    rows, speed = shipped.rows.copy(), shipped.type_speed.copy()
    traffic, pressure, of_type = DRIFT[regime]
    if regime is Regime.EXCHANGED:
        order = rng.permutation(len(rows))
        for name in ("traffic_gbps", "spread_exponent", "overlap_ratio"):
            rows[name] = rows[name][order]
        rows["node_pressure"] = rows["node_pressure"][rng.permutation(len(rows))]
    extra = _HEAVY if regime is Regime.HEAVY else 0.0
    rows["traffic_gbps"] *= np.exp(rng.normal(extra, traffic, len(rows)))
    rows["node_pressure"] *= np.exp(rng.normal(extra / 2.0, pressure, len(rows)))
    speed *= np.exp(rng.normal(0.0, of_type, speed.shape) + rng.normal(0.0, _TYPE_DRIFT, (1, speed.shape[1])))
    return replace(shipped, rows=rows, type_speed=speed)


def between(before: Profiles, after: Profiles, share: float) -> Profiles:
    """Return profiles a share of the way from some to others, in logarithms."""
    rows = before.rows.copy()
    for name in ("traffic_gbps", "node_pressure"):
        low, high = np.maximum(before.rows[name], 1e-6), np.maximum(after.rows[name], 1e-6)
        rows[name] = low * (high / low) ** share
    speed = before.type_speed * (after.type_speed / before.type_speed) ** share
    return replace(before, rows=rows, type_speed=speed)


def _mean_speed(cluster: Cluster) -> float:
    """Return how fast the GPUs of a cluster are on average, over its first type, as the profiles have it."""
    shipped = load_profiles()
    speed = np.exp(np.log(shipped.type_speed).mean(axis=0))
    of_type = {name: float(speed[shipped.gpu_types.index(name)]) for name in cluster.gpu_types}
    counts = {group.gpu_type: group.count for group in cluster.nodes}
    total = sum(count * of_type[name] for name, count in counts.items())
    return total / sum(counts.values()) / of_type[cluster.gpu_types[0]]


def _other_types(rng: np.random.Generator, before: Profiles, types: Sequence[str]) -> Profiles:
    """Return profiles with other speeds by GPU type; on a site with one type other neighbours press."""
    if len(types) == 1:
        return behaving(rng, Regime.DRIFTED)
    speed = before.type_speed * np.exp(rng.normal(0.0, 0.5, before.type_speed.shape))
    return replace(before, type_speed=speed)


def _cluster(rng: np.random.Generator, family: SiteFamily, types: Sequence[str], leaf: int) -> Cluster:
    """Return servers of each type in whole leaves where they can be, and the network above them."""
    shares = rng.dirichlet(np.full(len(types), 8.0))
    counts = np.maximum(1, np.round(shares * family.servers).astype(int))
    counts[0] += family.servers - counts.sum()
    network = Network(
        nic_gbps=float(rng.choice(family.nic_gbps)), oversubscription=float(rng.choice(family.oversubscription))
    )
    nodes = tuple(
        NodeGroup(count=int(count), gpus=GPUS_PER_NODE, gpu_type=name, leaf=min(leaf, int(count)))
        for name, count in zip(types, counts, strict=True)
    )
    return Cluster(nodes=nodes, network=network)


def _changed(trace: Trace, change: Change, rng: np.random.Generator) -> tuple[Trace, float]:
    """Return the trace with the load of its second half changed where that is the change, and when it sets in."""
    jobs = trace.jobs.copy()
    half = len(jobs) - min(AFTER, len(jobs) * 5 // 8)
    time = float(jobs["submit_time"][half])
    if change is Change.LOAD:
        faster = float(rng.uniform(1.3, 1.6))
        jobs["submit_time"][half:] = np.floor(time + (jobs["submit_time"][half:] - time) / faster)
    return replace(trace, jobs=jobs), np.inf if change is Change.NONE else time


def _with_models(trace: Trace, seed: int, rng: np.random.Generator, until: float) -> Trace:
    """Give every job a model of a part of the known ones; after an instant, of another part."""
    names = [name for name in load_profiles().names if name != NEUTRAL and "/" not in name]
    order = rng.permutation(len(names))
    first = [names[place] for place in sorted(order[: len(names) * 2 // 3])]
    second = [names[place] for place in sorted(order[len(names) // 3 :])]
    blank = trace.jobs.copy()
    blank["model"] = -1
    trace = replace(trace, jobs=blank, models=())
    early = fill(trace, first, seed, gpus_per_node=GPUS_PER_NODE, requests=OPEN)
    late = fill(trace, second, seed + 1, gpus_per_node=GPUS_PER_NODE, requests=OPEN)
    models = tuple(sorted({*early.models, *late.models}))
    rows = trace.jobs.copy()
    codes = [[models.index(name) for name in part.models] for part in (early, late)]
    of_early, of_late = (
        np.array(code, np.int64)[part.jobs["model"]] for code, part in zip(codes, (early, late), strict=True)
    )
    rows["model"] = np.where(rows["submit_time"] < until, of_early, of_late)
    return replace(trace, jobs=rows, models=models)
