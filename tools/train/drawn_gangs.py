"""Draws clusters, topologies and workloads on which agents place gangs; what is judged is drawn from other seeds.

Sizes and run times are ours, near what public traces report: many jobs of one GPU and few gangs as on Microsoft's
Philly, and larger gangs as on SenseTime's Helios. Arrivals follow the hours of the day. No job has a time limit, as
schedulers in papers know none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S
from advisor.sim.cluster import Cluster, parse_cluster
from advisor.sim.traces.trace import TRACE_DTYPE, Trace
from tools.data.dally_workload import with_models

GPUS_PER_NODE: Final = 8
NIC_GBPS: Final = 100.0
DEMANDS: Final = (1, 2, 4, 8, 16, 32, 64)
MIXES: Final[Mapping[str, tuple[float, ...]]] = {
    "philly": (0.50, 0.12, 0.13, 0.15, 0.06, 0.03, 0.01),
    "helios": (0.30, 0.10, 0.15, 0.20, 0.14, 0.08, 0.03),
}
SHORTEST_S, LONGEST_S = MINUTE_S, 4 * DAY_S
# What a site knows of a run time: off by this factor either way in two of three jobs.
BELIEF_SPREAD: Final = 0.5
# The busiest hour brings three times the jobs of the quietest.
SWING: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchTree:
    """Servers under leaf switches, and how much less their uplinks and the spine carry than the NICs below."""

    leaf_servers: int
    oversubscription: float
    spine_oversubscription: float = 1.0


# Fat trees, leaf and spine at several ratios, and blocks with a narrow spine between them.
TRAINING: Final[Sequence[SwitchTree]] = (
    SwitchTree(leaf_servers=4, oversubscription=1.0),
    SwitchTree(leaf_servers=4, oversubscription=4.0),
    SwitchTree(leaf_servers=8, oversubscription=2.0),
    SwitchTree(leaf_servers=8, oversubscription=4.0),
    SwitchTree(leaf_servers=8, oversubscription=10.0),
    SwitchTree(leaf_servers=16, oversubscription=4.0),
    SwitchTree(leaf_servers=16, oversubscription=2.0, spine_oversubscription=4.0),
)
UNSEEN: Final[Sequence[SwitchTree]] = (
    SwitchTree(leaf_servers=6, oversubscription=6.0),
    SwitchTree(leaf_servers=12, oversubscription=3.0),
    SwitchTree(leaf_servers=32, oversubscription=8.0),
    SwitchTree(leaf_servers=8, oversubscription=1.0, spine_oversubscription=8.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a drawn cluster is, and how many agents divide it; ranges hold both ends, loads are drawn between."""

    agents: tuple[int, ...]
    servers_each: tuple[int, ...]
    jobs_per_gpu: float
    load_ratio: tuple[float, float] = (0.8, 1.2)
    topologies: Sequence[SwitchTree] = TRAINING


# From one agent to several.
CURRICULUM: Final[Sequence[Scale]] = (
    Scale(agents=(1,), servers_each=(16, 32), jobs_per_gpu=2.0),
    Scale(agents=(1, 2, 4), servers_each=(16, 32), jobs_per_gpu=1.5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnGangs:
    """A workload, its cluster, the number of agents, and the run times that are believed, `(n_jobs,)`."""

    trace: Trace
    cluster: Cluster
    agents: int
    believed_s: np.ndarray


def draw(seed: int, scale: Scale) -> DrawnGangs:
    """Return the workload of a seed; every agent has whole leaves, as many as any other."""
    rng = np.random.default_rng([seed, 20])
    topology = scale.topologies[int(rng.integers(len(scale.topologies)))]
    agents, servers_each = int(rng.choice(scale.agents)), int(rng.choice(scale.servers_each))
    servers = agents * max(1, round(servers_each / topology.leaf_servers)) * topology.leaf_servers
    text = (
        f"nodes={servers},gpus={GPUS_PER_NODE},leaf={topology.leaf_servers},nic_gbps={NIC_GBPS:g},"
        f"oversubscription={topology.oversubscription:g},spine_oversubscription={topology.spine_oversubscription:g}"
    )
    gpus = servers * GPUS_PER_NODE
    mix = MIXES[str(rng.choice(list(MIXES)))]
    trace = drawn_trace(
        seed, rng, round(scale.jobs_per_gpu * gpus), gpus, gpus // agents, mix, rng.uniform(*scale.load_ratio)
    )
    error = np.exp(BELIEF_SPREAD * rng.standard_normal(len(trace)))
    believed_s = np.clip(trace.jobs["run_time_s"] * error, SHORTEST_S, LONGEST_S)
    return DrawnGangs(trace=trace, cluster=parse_cluster(text), agents=agents, believed_s=believed_s)


def drawn_trace(
    seed: int,
    rng: np.random.Generator,
    count: int,
    gpus: int,
    largest: int,
    mix: tuple[float, ...],
    load_ratio: float,
) -> Trace:
    """Return a trace of `count` jobs for a cluster of some GPUs, none larger than half of `largest`, at a load."""
    rows = np.zeros(count, TRACE_DTYPE)
    rows["job_id"] = np.arange(1, count + 1)
    # No gang is larger than half of what one agent has.
    asked = np.minimum(rng.choice(DEMANDS, count, p=mix), max(1, largest // 2))
    rows["gpus"] = rows["gpus_min"] = rows["gpus_max"] = asked
    run_time_s = 2.0 * HOUR_S * np.exp(rng.normal(0.0, 1.2, count))
    rows["run_time_s"] = np.round(np.clip(run_time_s, SHORTEST_S, LONGEST_S))
    period_s = float((rows["run_time_s"] * asked).sum()) / gpus / load_ratio
    rows["submit_time"] = _arrivals(rng, count, period_s)
    rows["time_limit_s"] = np.inf
    rows["gpu_type"] = rows["model"] = -1
    rows["recorded_start_time"] = np.nan
    trace = Trace(name=f"drawn {seed}", jobs=rows, seed=seed)
    return with_models(trace, seed)


def _arrivals(rng: np.random.Generator, count: int, period_s: float) -> np.ndarray:
    """Return sorted submit times in a period, by a Poisson process whose rate swings over each day."""
    grid = np.linspace(0.0, period_s, 4096)
    rate = 1.0 + SWING * np.sin(2.0 * np.pi * (grid / DAY_S + rng.uniform()))
    total = np.cumsum(rate)
    times = np.sort(np.interp(rng.uniform(total[0], total[-1], count), total, grid))
    return np.asarray(np.floor(times - times[0]))
