"""Write the trace that ships with the package: a synthetic workload of about two days for 16 nodes of 8 GPUs.

    python -m tools.demo_trace [-o advisor/demo/trace.csv]

Sizes, run times and arrivals are drawn from the distributions below with a fixed seed; the sampler draws the rest.
Equal runs write equal bytes.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.sim.traces.sampling import OPEN, fill
from advisor.sim.traces.trace import TRACE_DTYPE, Trace
from advisor.sim.traces.trace_file import write_trace

SEED = 20
JOB_COUNT = 260
GPUS_PER_NODE = 8
HOUR_S = 3600.0

# A fixed list, so that a new profile does not change the trace.
MODELS = (
    "bert", "cyclegan", "deepspeech2", "dlrm", "gpt2", "llama30", "llama7", "lm", "mobilenetv3", "recommendation",
    "resnet18", "resnet50", "transformer", "vgg16", "vit", "yolov3",
)  # fmt: skip
# Shares of sizes: many small jobs, and the few large ones that hold most of the GPUs.
SIZES = (1, 2, 4, 8, 16, 32)
SIZE_SHARES = (0.30, 0.14, 0.19, 0.22, 0.10, 0.05)
# Run times are log-normal with this median, within the shortest and the longest.
MEDIAN_RUN_TIME_S = 1.5 * HOUR_S
RUN_TIME_SPREAD = 1.2
SHORTEST_S, LONGEST_S = 60.0, 20 * HOUR_S
# The period of submissions, three times as frequent in working hours.
SUBMITTED_WITHIN_S = 36 * HOUR_S
WORKING_HOURS = range(9, 19)
BUSY_FACTOR = 3.0
# The share of jobs over several nodes of one leaf that ask Slurm to wait for a single leaf switch, and the wait.
SWITCHES_SHARE = 0.5
SWITCHES_WAIT_S = 1800.0
LEAF_GPUS = 4 * GPUS_PER_NODE
CPUS_PER_GPU, MEMORY_MIB_PER_GPU = 8, 65536
URGENT_SHARE = 0.05


def main() -> None:
    """Write the trace."""
    parser = argparse.ArgumentParser(prog="python -m tools.demo_trace", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("advisor/demo/trace.csv"), help="where to write")
    output = parser.parse_args().output
    write_trace(demo_trace(), output)
    # Traces are written with access for their owner only; this one ships with the package.
    output.chmod(0o644)


def demo_trace() -> Trace:
    """Return the trace."""
    stream = np.random.default_rng(SEED)
    jobs = np.zeros(JOB_COUNT, TRACE_DTYPE)
    jobs["job_id"] = np.arange(1, JOB_COUNT + 1)
    jobs["submit_time"] = _arrivals(stream)
    run_time_s = MEDIAN_RUN_TIME_S * np.exp(stream.normal(0.0, RUN_TIME_SPREAD, JOB_COUNT))
    jobs["run_time_s"] = np.round(np.clip(run_time_s, SHORTEST_S, LONGEST_S))
    jobs["gpus"] = stream.choice(SIZES, JOB_COUNT, p=SIZE_SHARES)
    jobs["gpus_min"] = jobs["gpus_max"] = jobs["gpus"]
    jobs["cpus_per_gpu"], jobs["memory_mib_per_gpu"] = CPUS_PER_GPU, MEMORY_MIB_PER_GPU
    jobs["time_limit_s"] = np.inf
    jobs["gpu_type"] = jobs["model"] = -1
    jobs["qos"] = stream.random(JOB_COUNT) >= URGENT_SHARE
    spans = (jobs["gpus"] > GPUS_PER_NODE) & (jobs["gpus"] <= LEAF_GPUS)
    asks = spans & (stream.random(JOB_COUNT) < SWITCHES_SHARE)
    jobs["switches"], jobs["switches_wait_s"] = asks, np.where(asks, SWITCHES_WAIT_S, 0.0)
    jobs["recorded_start_time"] = np.nan
    trace = Trace(name="demo", jobs=jobs, qos=("high", "normal"), note="made up by python -m tools.demo_trace")
    return fill(trace, MODELS, SEED, gpus_per_node=GPUS_PER_NODE, requests=OPEN)


def _arrivals(stream: np.random.Generator) -> NDArray[np.float64]:
    """Draw submission times, more of them in working hours; the first, at 0, is in the morning."""
    hours = np.arange(round(SUBMITTED_WITHIN_S / HOUR_S))
    busy = np.isin((hours + WORKING_HOURS.start) % 24, WORKING_HOURS)
    weights = np.where(busy, BUSY_FACTOR, 1.0)
    drawn = stream.choice(hours, JOB_COUNT, p=weights / weights.sum()) * HOUR_S + stream.random(JOB_COUNT) * HOUR_S
    arrivals = np.sort(np.floor(drawn))
    return np.asarray(arrivals - arrivals[0])


if __name__ == "__main__":
    main()
