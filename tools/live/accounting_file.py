"""Writes the past of a cluster as sacct would print it, and fits a run-time model to it."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from advisor.domain.units import MINUTE_S
from advisor.errors import SimulationError
from advisor.fit.accounting import FIELDS
from advisor.sim.trace import Trace
from tools.live.requests import GPU_TYPE
from tools.live_slurm.daemon import PROGRAM

HEADER: Final = FIELDS.replace(",", "|")
_FEWEST: Final = 100


def fit_past(past: Trace, folder: Path, *, zero_time: float) -> Path:
    """Fit a run-time model to ended jobs as an administrator does; return the folder of the models.

    Instants of the jobs count from `zero_time`. Raises `SimulationError` if they are too few or the fit fails.
    """
    if len(past) < _FEWEST:
        raise SimulationError(f"{len(past)} jobs of the trace ended before this part, fewer than {_FEWEST}: fit none")
    models, accounting = folder / "models", folder / "sacct.txt"
    accounting.write_text("\n".join([HEADER, *accounting_lines(past, zero_time)]) + "\n")
    fit = subprocess.run(
        [sys.executable, *PROGRAM, "fit", "runtime", "--from", accounting, "--models", models],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if fit.returncode:
        raise SimulationError(f"the run-time model cannot be fitted: {fit.stderr.strip()}")
    (folder / "fit.txt").write_text(fit.stdout + fit.stderr)
    return models


def accounting_lines(past: Trace, zero_time: float) -> list[str]:
    """Return the rows of sacct for jobs that started when they were submitted."""
    return [_line(past, row, zero_time) for row in range(len(past))]


def _line(past: Trace, row: int, zero_time: float) -> str:
    job = past.jobs[row]
    submit_time, elapsed_s = zero_time + float(job["submit_time"]), float(job["run_time_s"])
    limit_s = float(job["time_limit_s"])
    tres = f"cpu=1,gres/gpu:{GPU_TYPE}={job['gpus']},gres/gpu={job['gpus']},node={max(1, int(job['nodes_min']))}"
    cells = (
        past.users[job["user"]],
        past.accounts[job["account"]],
        past.partitions[job["partition"]],
        "normal",
        f"{submit_time:.0f}",
        f"{submit_time:.0f}",
        f"{submit_time + min(elapsed_s, limit_s):.0f}",
        f"{min(elapsed_s, limit_s):.0f}",
        f"{limit_s / MINUTE_S:.0f}",
        "TIMEOUT" if elapsed_s >= limit_s else "COMPLETED",
        tres,
        tres,
        f"job{job['job_id']}",
    )
    return "|".join(cells)
