"""Traces and clusters for tests of the simulator: a test names what matters to it and nothing else."""

from collections.abc import Mapping, Sequence

import numpy as np

from advisor.sim.cluster import Cluster, parse_cluster
from advisor.sim.outcome import Run
from advisor.sim.policy import Options
from advisor.sim.runner import simulate
from advisor.sim.trace import TRACE_DTYPE, Trace

IDEAL = Options(execution="ideal")


def make_trace(jobs: Sequence[Mapping[str, float | str]], *, users: tuple[str, ...] = ("ann", "bob", "cy")) -> Trace:
    """Build a trace from the columns that matter; every job takes one GPU for 100 s and has no limit, unless told.

    `model` and `user` are given by name. A job takes the fewest nodes that hold it; `nodes_max` 0 leaves that open.
    """
    rows = np.zeros(len(jobs), TRACE_DTYPE)
    rows["job_id"] = np.arange(1, len(jobs) + 1)
    rows["run_time_s"] = 100.0
    rows["gpus"] = rows["nodes_max"] = 1
    rows["time_limit_s"] = np.inf
    rows["gpu_type"] = rows["model"] = -1
    rows["recorded_start_time"] = np.nan
    models = tuple(dict.fromkeys(str(job["model"]) for job in jobs if "model" in job))
    for row, job in zip(rows, jobs, strict=True):
        for name, value in job.items():
            match name:
                case "model":
                    row[name] = models.index(str(value))
                case "user":
                    row[name] = users.index(str(value))
                case _:
                    row[name] = value
        row["gpus_min"] = row["gpus_min"] or row["gpus"]
        row["gpus_max"] = row["gpus_max"] or row["gpus"]
    return Trace(name="made", jobs=rows, users=users, models=models)


def starts_and_ends(run: Run) -> list[tuple[float, float]]:
    """List the first start and the end of every job."""
    return [(float(row["start_time"]), float(row["end_time"])) for row in run.outcomes]


def run_of(trace: Trace, cluster: str | Cluster, policy: str, options: Options = IDEAL, seed: int = 0) -> Run:
    """Simulate, by default without inflation and restart cost."""
    where = parse_cluster(cluster) if isinstance(cluster, str) else cluster
    return simulate(trace, where, policy, seed=seed, options=options)
