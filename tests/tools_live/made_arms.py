"""Kept clusters for tests of the report, written as a run writes them."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from advisor.sim.cluster import parse_cluster
from advisor.sim.run_outcome import End, Run
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_trace
from tests.sim.runs import make_run
from tools.live.compressed_site import CompressedSite
from tools.live.kept import keep
from tools.live.window import Cut
from tools.stage.sdiag import Cycles

SPEEDUP = 60.0
# slurmctld worked priorities out 13 s before the first submission, and every 60 s since then.
ZERO_TIME = 1e9
PRIORITIES_TIME = ZERO_TIME - 253.0
SITE = CompressedSite(release="22.05", nodes=2, leaf_nodes=1, speedup=SPEEDUP, nic_gbps=100.0, oversubscription=1.0)
CUT = Cut(seed=1, load=1.0, span_s=3600.0, longest_s=3600.0, speedup=SPEEDUP)
CLUSTER = parse_cluster("nodes=2,gpus=8,leaf=1")
CYCLES = Cycles(
    main_passes=10,
    main_mean_s=1e-4,
    backfill_passes=5,
    backfill_mean_s=2e-3,
    requests={"REQUEST_JOB_INFO": 4},
    request_s=4e-3,
    request_s_by_type={"REQUEST_JOB_INFO": 4e-3},
)


def made_trace(jobs: int = 12) -> Trace:
    """Return jobs of two users, one every 5 s, which take 10 s."""
    users = ("ann", "bob")
    columns: list[dict[str, Any]] = [
        {"submit_time": 5.0 * row, "run_time_s": 10.0, "time_limit_s": 60.0, "user": users[row % 2]}
        for row in range(jobs)
    ]
    return make_trace(columns, users=users)


def made_run(trace: Trace, waits_s: Sequence[float], *, ends: Sequence[End] | None = None, seed: int = 1) -> Run:
    """Return a run in which the jobs wait that long, and take as long as their traces say."""
    times = [
        (float(job["submit_time"]) + wait_s, float(job["submit_time"] + job["run_time_s"]) + wait_s)
        for job, wait_s in zip(trace.jobs, waits_s, strict=True)
    ]
    return make_run(trace, times, ends=ends, seed=seed, cluster_gpus=CLUSTER.gpus)


def keep_made(
    folder: Path,
    name: str,
    run: Run,
    *,
    planned: str = "",
    faults: Sequence[str] = (),
    cycles: Cycles = CYCLES,
    cut: Cut = CUT,
) -> None:
    """Write a cluster, by default one of the policy in its name; its jobs have the ids 101 and so on."""
    folder.mkdir(exist_ok=True)
    arm: Any = SimpleNamespace(
        name=name,
        execution=SimpleNamespace(run=lambda *_args, **_options: run, cluster=CLUSTER),
        seen={row: SimpleNamespace(job_id=101 + row) for row in range(len(run.trace))},
        live=SimpleNamespace(version="22.05.8"),
        zero_time=ZERO_TIME,
        cycles=cycles,
        faults=list(faults),
    )
    keep(
        folder,
        arm,
        planned or name.partition("-")[0],
        site=SITE,
        cut=cut,
        seed=run.seed,
        wall_s=90.0,
        priorities_time=PRIORITIES_TIME,
    )
