"""The workload and the cluster on which Dally is measured: 500 jobs of up to 64 GPUs, drawn for every seed.

Equal seeds give equal jobs under every arrival: only the times of submission differ, and over Poisson arrivals only by
their scale. The numbers below are ours, round ones near what public traces report; the page says which.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from advisor.sim.profiles import NEUTRAL, load_profiles
from advisor.sim.traces.sampling import OPEN, fill
from advisor.sim.traces.trace import TRACE_DTYPE, Trace

HOUR_S: Final = 3600.0
LEAVES: Final = 8
LEAF_NODES: Final = 8
GPUS_PER_NODE: Final = 8
LEAF_GPUS: Final = LEAF_NODES * GPUS_PER_NODE
GPUS: Final = LEAVES * LEAF_GPUS
NIC_GBPS: Final = 100.0

# The GPUs that a job asks for, and the share of jobs that do.
DEMANDS: Final = (1, 2, 4, 8, 16, 32, 64)
DEMAND_SHARES: Final = (0.30, 0.10, 0.15, 0.20, 0.12, 0.08, 0.05)
# Run times are log-normal: half of them above this, and cut at both ends.
MEDIAN_RUN_TIME_S: Final = 2 * HOUR_S
RUN_TIME_SPREAD: Final = 1.3
SHORTEST_S, LONGEST_S = 60.0, 48 * HOUR_S
CHECKPOINT_INTERVAL_S: Final = 1800.0


def make_trace(seed: int, jobs: int, load_ratio: float | None) -> Trace:
    """Draw the jobs of a seed, submitted all at once (None) or by a Poisson process that brings in a load.

    The load is the GPU-time that jobs bring in over what the cluster has in that time; their rate follows from it and
    from the GPU-time that was drawn.
    """
    stream = np.random.default_rng(seed)
    rows = np.zeros(jobs, TRACE_DTYPE)
    rows["job_id"] = np.arange(1, jobs + 1)
    rows["gpus"] = rows["gpus_min"] = rows["gpus_max"] = stream.choice(DEMANDS, jobs, p=DEMAND_SHARES)
    run_time_s = MEDIAN_RUN_TIME_S * np.exp(stream.normal(0.0, RUN_TIME_SPREAD, jobs))
    rows["run_time_s"] = np.round(np.clip(run_time_s, SHORTEST_S, LONGEST_S))
    gaps = stream.exponential(1.0, jobs)
    if load_ratio is not None:
        mean_gap_s = float((rows["run_time_s"] * rows["gpus"]).mean()) / (GPUS * load_ratio)
        times = np.cumsum(gaps) * mean_gap_s
        rows["submit_time"] = times - times[0]
    rows["time_limit_s"] = np.inf
    rows["checkpoint_interval_s"] = CHECKPOINT_INTERVAL_S
    rows["gpu_type"] = rows["model"] = -1
    rows["recorded_start_time"] = np.nan
    return with_models(Trace(name=arrival_name(load_ratio), jobs=rows, seed=seed), seed)


def with_models(trace: Trace, seed: int) -> Trace:
    """Give every job a model of the known profiles, by its size; whatever else the sampler draws is left out."""
    profiles = [name for name in load_profiles().names if name != NEUTRAL]
    # Without arrays, whose tasks share a model.
    filled = fill(trace, profiles, seed, gpus_per_node=GPUS_PER_NODE, requests=OPEN)
    rows = trace.jobs.copy()
    rows["model"] = filled.jobs["model"]
    return replace(trace, jobs=rows, models=filled.models)


def arrival_name(load_ratio: float | None) -> str:
    """Return what stands for an arrival in tables."""
    return "batch" if load_ratio is None else f"load {load_ratio:g}"


def cluster_text(oversubscription: float, nic_gbps: float) -> str:
    """Return 8 leaves of 8 nodes of 8 GPUs, with leaf uplinks of an oversubscription."""
    return f"{_leaves_text(LEAVES, nic_gbps)},oversubscription={oversubscription:g}"


def roomy_cluster_text(jobs: int, nic_gbps: float) -> str:
    """Return as many such leaves as there are jobs, on which every job starts at once on its best placement, alone."""
    return _leaves_text(jobs, nic_gbps)


def _leaves_text(leaves: int, nic_gbps: float) -> str:
    return f"nodes={leaves * LEAF_NODES},gpus={GPUS_PER_NODE},leaf={LEAF_NODES},nic_gbps={nic_gbps:g}"
