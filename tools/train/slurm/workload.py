"""Draws workloads and clusters to train on, and others to judge on; none of the published traces is among them.

Sizes, run times, loads and clusters are ours. Those of `TRAINING` are wide, so that the published traces lie inside;
those of `SHIFTED` lie outside of them.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S
from advisor.sim.cluster import Cluster, parse_cluster
from advisor.sim.study.cell import drawn
from advisor.sim.traces.trace import TRACE_DTYPE, Trace

LEAF_NODES: Final = 8
SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
SHORTEST_S, LONGEST_S = MINUTE_S, 10 * DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """What workloads are drawn from; two numbers are the ends of a range.

    Half of the jobs of several GPUs declare a range of sizes, as where policies are judged. Seeds take the ranges of
    `load_ratios` in turn. `size_shares` are those of `SIZES`.
    """

    jobs: int = 300
    elastic_share: float = 0.5
    nodes: tuple[int, int] = (2, 24)
    gpus_per_node: tuple[int, ...] = (4, 8)
    load_ratios: tuple[tuple[float, float], ...] = ((0.6, 1.4),)
    size_shares: tuple[float, ...] = (0.42, 0.12, 0.15, 0.18, 0.08, 0.04, 0.01)
    median_run_s: tuple[float, float] = (10 * MINUTE_S, 3 * HOUR_S)
    run_spread: tuple[float, float] = (1.0, 2.2)  # standard deviation of the logarithm
    burst: tuple[int, int] = (1, 12)  # jobs that come at once


TRAINING: Final = Ranges()
# Clusters larger than any in training, loads below and above those there, and larger jobs.
SHIFTED: Final = Ranges(
    jobs=600,
    nodes=(32, 64),
    load_ratios=((0.3, 0.6), (1.4, 2.0)),
    size_shares=(0.25, 0.10, 0.15, 0.25, 0.13, 0.09, 0.03),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A trace whose columns are all drawn, and its cluster."""

    trace: Trace
    cluster: Cluster


def workload(seed: int, ranges: Ranges | None = None) -> Workload:
    """Return the workload of a seed, from the ranges of training unless others are given."""
    ranges = ranges or TRAINING
    count = ranges.jobs
    rng = np.random.default_rng([seed, 18])
    nodes = int(np.exp(rng.uniform(*np.log(ranges.nodes))))
    gpus_per_node = int(rng.choice(ranges.gpus_per_node))
    total = nodes * gpus_per_node
    run_s = rng.uniform(*np.log(ranges.median_run_s)) + rng.uniform(*ranges.run_spread) * rng.standard_normal(count)
    run_time_s = np.clip(np.exp(run_s), SHORTEST_S, LONGEST_S).round()
    gpus = np.minimum(rng.choice(SIZES, count, p=ranges.size_shares), max(1, total // 2))
    load_ratio = rng.uniform(*ranges.load_ratios[seed % len(ranges.load_ratios)])
    period_s = float((run_time_s * gpus).sum()) / total / load_ratio
    burst = int(rng.integers(*ranges.burst, endpoint=True))
    gaps = rng.exponential(size=-(-count // burst)).repeat(burst)[:count]
    gaps[np.arange(count) % burst > 0] = 0.0
    submit_time = np.floor(gaps.cumsum() / gaps.sum() * period_s)
    jobs = np.zeros(count, TRACE_DTYPE)
    jobs["job_id"] = np.arange(1, count + 1)
    jobs["submit_time"], jobs["run_time_s"] = submit_time - submit_time[0], run_time_s
    jobs["gpus"] = jobs["gpus_min"] = jobs["gpus_max"] = gpus
    jobs["time_limit_s"] = np.inf
    jobs["gpu_type"] = jobs["model"] = -1
    jobs["recorded_start_time"] = np.nan
    cluster = parse_cluster(f"nodes={nodes},gpus={gpus_per_node},leaf={LEAF_NODES}")
    trace = Trace(name=f"drawn {seed}", jobs=jobs)
    return Workload(trace=drawn(trace, cluster, seed, elastic_share=ranges.elastic_share), cluster=cluster)
