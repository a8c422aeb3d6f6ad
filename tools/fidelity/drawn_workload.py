"""Workloads that make a cluster of eight nodes with eight GPUs queue, drawn from a seed."""

from dataclasses import dataclass, replace

import numpy as np

from tools.fidelity.recording import Account, JobRequest, NiceChange, RecordedWorkload

# System users that every Debian has; Slurm runs jobs only for users that the machine knows.
ACCOUNTS = (
    Account(name="vision", user="games", shares=4),
    Account(name="language", user="mail", shares=2),
    Account(name="biology", user="news", shares=1),
)
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Says how large a workload is: its jobs arrive over `arrivals_s` and sleep `shortest_s` to `longest_s`."""

    jobs: int
    arrivals_s: float
    shortest_s: float
    longest_s: float
    changes: int
    overrunning: int


LONG = Size(jobs=64, arrivals_s=120.0, shortest_s=5.0, longest_s=85.0, changes=6, overrunning=1)
SHORT = Size(jobs=30, arrivals_s=12.0, shortest_s=5.0, longest_s=28.0, changes=3, overrunning=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnShape:
    """One kind of request and how often it comes, against the others; no node count means `--gpus` alone."""

    gpus: int
    nodes: int | None
    weight: float
    switches: bool = False


SHAPES = (
    DrawnShape(gpus=1, nodes=1, weight=4),
    DrawnShape(gpus=2, nodes=1, weight=4),
    DrawnShape(gpus=3, nodes=1, weight=2),
    DrawnShape(gpus=4, nodes=1, weight=4),
    DrawnShape(gpus=6, nodes=1, weight=2),
    DrawnShape(gpus=8, nodes=1, weight=4),
    DrawnShape(gpus=8, nodes=2, weight=1),
    DrawnShape(gpus=8, nodes=2, weight=1, switches=True),
    DrawnShape(gpus=16, nodes=2, weight=2),
    DrawnShape(gpus=16, nodes=2, weight=2, switches=True),
    DrawnShape(gpus=5, nodes=None, weight=1),
    DrawnShape(gpus=12, nodes=None, weight=1),
)


def draw_workload(seed: int, size: Size) -> RecordedWorkload:
    """Draw jobs and changes of nice; the same seed and size give the same workload."""
    random = np.random.default_rng(seed)
    times = np.sort(random.uniform(0.0, size.arrivals_s, size.jobs)).round(2)
    # What fills the cluster comes at once, so that a queue forms from the start.
    times[: size.jobs // 4] = np.linspace(0.0, 1.0, size.jobs // 4).round(2)
    jobs = [_draw_job(random, rank, float(time), size) for rank, time in enumerate(times)]
    for rank in range(size.overrunning):
        victim = size.jobs // 3 + rank
        jobs[victim] = replace(jobs[victim], sleep_s=4 * MINUTE_S, time_limit_s=MINUTE_S)
    changed = np.sort(random.choice(np.arange(size.jobs // 4, size.jobs), size.changes, replace=False))
    changes = [
        NiceChange(
            name=jobs[rank].name,
            time=round(jobs[rank].submit_time + float(random.uniform(2.0, 12.0)), 2),
            nice=int(random.choice([150, 400, 900])),
        )
        for rank in changed
    ]
    changes.sort(key=lambda change: (change.time, change.name))
    return RecordedWorkload(seed=seed, jobs=tuple(jobs), changes=tuple(changes))


def _draw_job(random: np.random.Generator, rank: int, time: float, size: Size) -> JobRequest:
    weights = np.array([shape.weight for shape in SHAPES])
    shape = SHAPES[random.choice(len(SHAPES), p=weights / weights.sum())]
    sleep_s = round(float(random.uniform(size.shortest_s, size.longest_s)), 1)
    # Slurm counts limits in minutes, and a job that ends within seconds of its limit could be killed by it.
    tightest = int((sleep_s + 10.0) // MINUTE_S) + 1
    limit = tightest if random.random() < 0.5 else int(random.integers(tightest, 6))
    return JobRequest(
        name=f"job{rank:03d}",
        user=ACCOUNTS[random.choice(len(ACCOUNTS), p=[0.5, 0.3, 0.2])].user,
        submit_time=time,
        gpus=shape.gpus,
        nodes=shape.nodes,
        time_limit_s=limit * MINUTE_S,
        sleep_s=sleep_s,
        switches_wait_s=MINUTE_S if shape.switches else 0.0,
        nice=int(random.choice([0, 0, 0, 100])),
    )
