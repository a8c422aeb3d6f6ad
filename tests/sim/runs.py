"""Runs for tests of what is made of them: built by hand, or by a rule that needs no simulator."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from advisor.errors import SimulationError
from advisor.sim.cluster import parse_cluster
from advisor.sim.run_outcome import OUTCOME_DTYPE, SEGMENT_DTYPE, End, Run
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.study.cell import Cell, Progress
from advisor.sim.study.result import RunResult, result_of
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_trace

CLUSTER = "nodes=2,gpus=8"
NAN = float("nan")


def make_run(
    trace: Trace,
    times: Sequence[tuple[float, float]],
    *,
    ends: Sequence[End] | None = None,
    policy: str = "slurm",
    seed: int = 0,
    cluster_gpus: int = 4,
    exposed_ratio: float = 0.0,
) -> Run:
    """Build a run from the start and end of every job, all finished unless told; a started job held its GPUs once."""
    outcomes = np.zeros(len(trace), OUTCOME_DTYPE)
    outcomes["start_time"], outcomes["end_time"] = np.array(times, dtype=np.float64).reshape(-1, 2).T
    outcomes["end"] = End.FINISHED if ends is None else list(ends)
    ran = ~np.isnan(outcomes["end_time"])
    held = trace.jobs["gpus"] * (outcomes["end_time"] - outcomes["start_time"])
    outcomes["held_gpu_s"] = np.where(ran, held, 0.0)
    outcomes["exposed_gpu_s"] = exposed_ratio * outcomes["held_gpu_s"]
    segments = np.zeros(int(ran.sum()), SEGMENT_DTYPE)
    segments["job"] = np.flatnonzero(ran)
    segments["gpus"] = trace.jobs["gpus"][ran]
    segments["start_time"] = outcomes["start_time"][ran]
    segments["end_time"] = outcomes["end_time"][ran]
    return Run(
        trace=trace,
        policy=policy,
        seed=seed,
        cluster_gpus=cluster_gpus,
        outcomes=outcomes,
        segments=segments,
        wall_s=2.0,
        peak_rss_mib=50.0,
    )


def random_trace(
    jobs: int, *, name: str = "made", users: tuple[str, ...] = ("ann", "bob", "cy"), seed: int = 0
) -> Trace:
    """Build a trace of independent jobs of 1 to 16 GPUs."""
    rng = np.random.default_rng(seed)
    one = make_trace([{}], users=users)
    trace = replace(one, jobs=np.repeat(one.jobs, jobs))
    trace.jobs["job_id"] = np.arange(1, jobs + 1)
    trace.jobs["submit_time"] = np.cumsum(rng.exponential(60.0, jobs))
    trace.jobs["run_time_s"] = rng.lognormal(7.0, 1.0, jobs)
    trace.jobs["gpus"] = trace.jobs["gpus_min"] = trace.jobs["gpus_max"] = 2 ** rng.integers(0, 5, jobs)
    trace.jobs["user"] = rng.integers(0, len(users), jobs)
    trace.jobs["time_limit_s"] = trace.jobs["run_time_s"] * 2
    return Trace(name=name, jobs=trace.jobs, users=users)


# What a policy of `shifted_run` adds to the run time of every job, as a factor.
PACE = {"slurm": 1.0, "rules": 0.8, "fifo": 1.5, "sjf": 1.0}


def shifted_run(trace: Trace, policy: str, seed: int) -> Run:
    """Let every job wait a little, by chance, and run at the pace of the policy."""
    rng = np.random.default_rng([seed, len(trace)])
    start = trace.jobs["submit_time"] + rng.exponential(100.0, len(trace))
    end = start + trace.jobs["run_time_s"] * PACE[policy]
    return make_run(
        trace, list(zip(start.tolist(), end.tolist(), strict=True)), policy=policy, seed=seed, cluster_gpus=16
    )


def shifted(cell: Cell, progress: Progress | None = None) -> Run:
    """Simulate a cell by `shifted_run`."""
    if progress is not None:
        progress(0.5)
    return shifted_run(cell.trace, cell.policy, cell.seed)


def make_cell(trace: Trace, *, policy: str = "slurm", seed: int = 0, cluster: str = CLUSTER) -> Cell:
    """Build a cell with the default options."""
    return Cell(trace=trace, cluster=parse_cluster(cluster), policy=policy, seed=seed, options=SimulationOptions())


def eight_cells() -> list[Cell]:
    """Build cells of two traces under two policies and two seeds."""
    return [
        make_cell(random_trace(jobs, name=f"of {jobs}"), policy=policy, seed=seed)
        for jobs in (30, 40)
        for policy in ("slurm", "rules")
        for seed in (0, 1)
    ]


def failing(cell: Cell, progress: Progress | None) -> Run:
    """Fail in another process."""
    raise SimulationError("cannot be")


def failing_beside_others(cell: Cell, progress: Progress | None) -> Run:
    """Fail in another process under the second seed, and hang under all others."""
    while cell.seed != 1:
        time.sleep(0.1)
    return failing(cell, progress)


def released(cell: Cell, progress: Progress | None) -> Run:
    """Simulate by `shifted_run` in another process, which makes a file in a folder and waits there for `go`."""
    folder = Path(os.environ["RELEASED_IN"])
    (folder / f"began-{cell.trace.name}-{cell.policy}-{cell.seed}").touch()
    while not (folder / "go").exists():
        time.sleep(0.1)
    return shifted(cell)


def dying(cell: Cell, progress: Progress | None) -> Run:
    """Die in another process as if for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return shifted(cell, progress)


def same(a: Sequence[RunResult], b: Sequence[RunResult]) -> bool:
    """Whether two lists of results agree to the last number."""
    return len(a) == len(b) and all(
        repr(replace(x, per_job=np.zeros(0))) == repr(replace(y, per_job=np.zeros(0)))
        and np.array_equal(x.per_job, y.per_job, equal_nan=True)
        for x, y in zip(a, b, strict=True)
    )


def expected(cells: Sequence[Cell]) -> list[RunResult]:
    """Return what the cells come to."""
    return [result_of(shifted(cell)) for cell in cells]
