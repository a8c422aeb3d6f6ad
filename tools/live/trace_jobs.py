"""Spells the jobs of a trace as options of sbatch, and their past as sacct would print it, to fit a model to."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from advisor.domain.units import MINUTE_S
from advisor.errors import SimulationError
from advisor.sim.traces.trace import Trace
from tools.stage.daemon import PROGRAM

GPU_TYPE: Final = "a100"


def options_of(trace: Trace, row: int, gpus_per_node: int) -> tuple[str, ...]:
    """Return the options of a job: what it asks for, its limit, its account and what its user declares."""
    job = trace.jobs[row]
    return (
        f"--job-name=job{job['job_id']}",
        f"--account={trace.accounts[job['account']]}",
        f"--partition={trace.partitions[job['partition']]}",
        f"--time={job['time_limit_s'] / MINUTE_S:.0f}",
        f"--comment={comment_of(trace, row)}",
        "--requeue",
        *_size(trace, row, gpus_per_node),
    )


def as_asked(trace: Trace, gpus_per_node: int) -> Trace:
    """Return a trace whose jobs are bound to as many nodes as their options bind them to."""
    jobs = trace.jobs.copy()
    bound = (jobs["gpus_min"] < jobs["gpus_max"]) & (jobs["nodes_max"] == 0)
    jobs["nodes_min"][bound] = 1
    jobs["nodes_max"][bound] = -(-jobs["gpus_max"][bound] // gpus_per_node)
    return replace(trace, jobs=jobs)


def comment_of(trace: Trace, row: int) -> str:
    """Return the comment with the hints of a job."""
    job = trace.jobs[row]
    words = [
        f"model={trace.models[job['model']]}" if job["model"] >= 0 else "",
        f"gpus={job['gpus_min']}-{job['gpus_max']}" if job["gpus_min"] < job["gpus_max"] else "",
        f"ckpt={max(1, round(job['checkpoint_interval_s']))}" if job["checkpoint_interval_s"] else "",
    ]
    return " ".join(["sadvise:", *filter(None, words)])


def _size(trace: Trace, row: int, gpus_per_node: int) -> tuple[str, ...]:
    """Return the GPUs and nodes that a job asks for, one task on each node.

    Where its node count is open it has as many tasks as it can have nodes, as Slurm gives a job no more nodes than
    tasks.
    """
    job = trace.jobs[row]
    gpus, nodes = int(job["gpus"]), int(job["nodes_max"])
    if nodes and gpus % nodes:
        return (f"--nodes={nodes}", f"--gpus={GPU_TYPE}:{gpus}", f"--ntasks={nodes}")
    if nodes:
        return (f"--nodes={nodes}", f"--gres=gpu:{GPU_TYPE}:{gpus // nodes}", "--ntasks-per-node=1")
    if gpus <= 1 and job["gpus_max"] <= 1:
        return ("--nodes=1", f"--gres=gpu:{GPU_TYPE}:{gpus}", "--ntasks-per-node=1")
    if job["gpus_min"] < job["gpus_max"]:
        # A task for each GPU would decide the size, which then could not be changed.
        most = -(-int(job["gpus_max"]) // gpus_per_node)
        return (f"--nodes=1-{most}", f"--gpus={GPU_TYPE}:{gpus}", f"--ntasks={most}")
    return (f"--gpus={GPU_TYPE}:{gpus}", f"--ntasks={gpus}")


_FEWEST: Final = 100


def fit_past(past: Trace, folder: Path, *, zero_time: float) -> Path:
    """Fit a run-time model to ended jobs as an administrator does; return the folder of the models.

    Instants of the jobs count from `zero_time`. Raises `SimulationError` if they are too few or the fit fails.
    """
    if len(past) < _FEWEST:
        raise SimulationError(f"{len(past)} jobs of the trace ended before this part, fewer than {_FEWEST}: fit none")
    models, accounting = folder / "models", folder / "models" / "sacct"
    models.mkdir()
    accounting.write_text(accounting_of(past, zero_time))
    fit = subprocess.run(
        [sys.executable, *PROGRAM, "fit", "runtime", "--from", accounting, "--models", models],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if fit.returncode:
        raise SimulationError(f"the run-time model cannot be fitted: {fit.stderr.strip()}")
    (folder / "fit.txt").write_text(fit.stdout + fit.stderr)
    return models


def accounting_of(past: Trace, zero_time: float) -> str:
    """Return what `sacct --json` prints of jobs that started when they were submitted."""
    return json.dumps({"jobs": [_entry(past, row, zero_time) for row in range(len(past))]}, indent=1)


def _entry(past: Trace, row: int, zero_time: float) -> dict[str, object]:
    job = past.jobs[row]
    submit_time, elapsed_s = round(zero_time + float(job["submit_time"])), float(job["run_time_s"])
    limit_s, gpus = float(job["time_limit_s"]), int(job["gpus"])
    asked = [
        {"type": "cpu", "name": "", "count": 1},
        {"type": "node", "name": "", "count": max(1, int(job["nodes_min"]))},
        *({"type": "gres", "name": name, "count": gpus} for name in ("gpu", f"gpu:{GPU_TYPE}")),
    ]
    return {
        "job_id": int(job["job_id"]),
        "name": f"job{job['job_id']}",
        "user": past.users[job["user"]],
        "account": past.accounts[job["account"]],
        "partition": past.partitions[job["partition"]],
        "qos": "normal",
        "state": {"current": ["TIMEOUT" if elapsed_s >= limit_s else "COMPLETED"]},
        "time": {
            "submission": submit_time,
            "start": submit_time,
            "elapsed": round(min(elapsed_s, limit_s)),
            "limit": round(limit_s / MINUTE_S),
        },
        "tres": {"requested": asked, "allocated": asked},
    }
