"""Writes the past of a cluster as sacct would print it, and fits a run-time model to it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from advisor.domain.units import MINUTE_S
from advisor.errors import SimulationError
from advisor.sim.traces.trace import Trace
from tools.live.sbatch_options import GPU_TYPE
from tools.stage.daemon import PROGRAM

_FEWEST: Final = 100


def fit_past(past: Trace, folder: Path, *, zero_time: float) -> Path:
    """Fit a run-time model to ended jobs as an administrator does; return the folder of the models.

    Instants of the jobs count from `zero_time`. Raises `SimulationError` if they are too few or the fit fails.
    """
    if len(past) < _FEWEST:
        raise SimulationError(f"{len(past)} jobs of the trace ended before this part, fewer than {_FEWEST}: fit none")
    models, accounting = folder / "models", folder / "sacct.json"
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
