"""Journals of a simulated site, kept as the daemon keeps them: cycles, and the outcomes of the jobs it follows."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.memory import Memory
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import DAY_S, HOUR_S
from advisor.journal import SqliteJournal
from advisor.sim.cluster import Cluster, NodeGroup
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.traces.trace import Trace
from advisor.trial.follower import Follower
from tests.sim.building import make_state, make_trace
from tools.data.graham_polls import COLUMNS

CLUSTER = Cluster(nodes=(NodeGroup(count=4, gpus=8, leaf=2),))
USERS = ("ann", "bob", "cy", "dan")
STEP_S = HOUR_S / 2
Show = Callable[[Snapshot], Snapshot]


def busy_trace(days: float, *, seed: int = 1) -> Trace:
    """Return jobs that ask for about as many GPU-hours as the cluster has, in bursts that are a day apart."""
    rng = np.random.default_rng(seed)
    jobs = round(35 * days)
    one = make_trace([{}], users=USERS)
    rows = np.repeat(one.jobs, jobs)
    rows["job_id"] = np.arange(1, jobs + 1)
    day = rng.integers(0, round(days), jobs)
    rows["submit_time"] = np.sort((day + rng.beta(2.0, 5.0, jobs)) * DAY_S)
    rows["gpus"] = rows["gpus_min"] = rows["gpus_max"] = 2 ** rng.integers(0, 4, jobs)
    rows["run_time_s"] = rng.lognormal(np.log(4.0 * HOUR_S), 0.8, jobs)
    rows["time_limit_s"] = np.minimum(rows["run_time_s"] * rng.uniform(1.2, 3.0, jobs), 2 * DAY_S)
    rows["run_time_s"] = np.minimum(rows["run_time_s"], rows["time_limit_s"])
    rows["user"] = rng.integers(0, len(USERS), jobs)
    return Trace(name="busy", jobs=rows, users=USERS)


def write_journal(path: Path, days: float, *, seed: int = 1, show: Show = lambda snapshot: snapshot) -> None:
    """Write the journal of a daemon that watched the simulated site; `show` changes what it saw."""
    trace = busy_trace(days, seed=seed)
    state = make_state(trace, CLUSTER, ideal=True)
    slurm = build_slurm(state, trace, CLUSTER)
    site = SimulatedSlurm(trace, CLUSTER, state, slurm)
    times = np.arange(1, round(days * DAY_S / STEP_S)) * STEP_S

    def seen(now: float) -> Snapshot:
        run_slurm(state, slurm, now)
        return show(site.snapshot())

    write_snapshots(path, map(seen, times.tolist()))


def write_snapshots(path: Path, snapshots: Iterable[Snapshot]) -> None:
    """Write the journal of a daemon that saw these snapshots and proposed nothing."""
    follower = Follower()
    with SqliteJournal(path) as journal, journal.together():
        journal.keeps_polls = True
        for snapshot in snapshots:
            record = CycleRecord(snapshot=snapshot, memory=Memory(), forecasts=NO_FORECASTS, judged=(), left_alone={})
            journal.record(record, Cycle())
            journal.keep_outcomes(follower.follow(snapshot, NO_FORECASTS))


def with_names(text: str) -> Show:
    """Return what changes the accounts, users and partitions of all jobs to a text."""
    return lambda snapshot: replace(
        snapshot, jobs=tuple(replace(job, user=text, account=text, partitions=(text,)) for job in snapshot.jobs)
    )


FIRST_POLL = datetime(2021, 5, 1, 12, tzinfo=UTC)
Row = dict[str, object]


def poll_row(*, day: int = 0, job: int = 1, ahead_hours: float = 100.0, **changes: object) -> Row:
    """Return one pending job at noon of a day; it waits as many hours as 100 GPUs need for what is ahead of it."""
    poll = FIRST_POLL + timedelta(days=day)
    row: Row = dict.fromkeys(COLUMNS, "0")
    row |= {
        "job_unique_id": job,
        "account_id": f"account{job % 3}",
        "partition_id_y": "gpu",
        "req_tres": "cpu=4,gres/gpu=1,mem=4000M,node=1",
        "poll_time": text(poll),
        "submit_time": text(poll - timedelta(hours=1 + job % 5)),
        "eligible_time": text(poll - timedelta(hours=1 + job % 5)),
        "time_limit_sec": 3600 * (1 + job % 4),
        "q_gpus_above": ahead_hours,
        "q_gpu_hours_above": ahead_hours,
        "r_gpus_above": 100,
        "r_gpu_hours_above": 2400,
        "r_a_gpus_above": 10,
        "r_a_gpu_hours_above": 240,
        "poll_wait_sec": ahead_hours * 36.0,
    }
    return row | changes


def poll_rows(*, days: int = 20, jobs: int = 40, seed: int = 1) -> list[Row]:
    """Return as many polls of as many jobs of their own, their waits off by a random factor of about 1.3."""
    chance = np.random.default_rng(seed)
    rows = []
    for day in range(days):
        for number in range(jobs):
            ahead_hours = round(float(10 ** chance.uniform(1.0, 3.5)), 2)
            wait_s = ahead_hours * 36.0 * float(10 ** chance.normal(0.0, 0.1))
            rows.append(
                poll_row(day=day, job=1 + day * jobs + number, ahead_hours=ahead_hours, poll_wait_sec=round(wait_s, 1))
            )
    return rows


def text(instant: datetime) -> str:
    """Write a time as the published tables do."""
    return instant.strftime("%Y-%m-%d %H:%M:%S")


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    """Write a table."""
    with path.open("w", newline="") as stream:
        table = csv.DictWriter(stream, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return path
