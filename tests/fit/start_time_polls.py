"""Small tables of polls: days on which what stands before a job decides how long it waits."""

import csv
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from tools.data.graham_polls import COLUMNS

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
