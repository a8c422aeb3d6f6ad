"""Queues that no limit on the whole answer would let through, printed by a real program and read in a process alone."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.programs import write_slurm

LIMIT_BYTES = 64 << 20
# Prints what is left of the largest queue: the jobs that were read, the others, and the memory that it took.
_READER = """
import json
from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from tools.bench.measuring import peak_mib

source = open_source("text", cluster=None, timeout_s=800.0, clock=SystemClock())
before = peak_mib()
snapshot = source.snapshot()
print(json.dumps({
    "jobs": len(snapshot.jobs),
    "unread": len(snapshot.unread_jobs),
    "dependent": sum(bool(job.dependency) for job in snapshot.jobs),
    "more_mib": peak_mib() - before,
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a reader made of a queue."""

    jobs: int
    unread: int
    dependent: int
    more_mib: float


def read(folder: Path, *, jobs: int, changes: Mapping[str, str], obeys_widths: bool = True) -> Read:
    """Read a queue of like jobs in a process of its own."""
    variables = write_slurm(folder, jobs=jobs, changes=changes, obeys_widths=obeys_widths)
    answer = subprocess.run(
        [sys.executable, "-c", _READER], env=variables, capture_output=True, text=True, timeout=850, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return Read(**json.loads(answer.stdout))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_thousand_jobs_are_read_in_two_kib_each(tmp_path: Path) -> None:
    jobs = 200_000

    seen = read(tmp_path, jobs=jobs, changes={"Name": "train-%d", "PriorityLong": "%d"})

    assert (seen.jobs, seen.unread) == (jobs, 0)
    assert seen.more_mib < jobs * 2 / 1024


# Of 580 jobs, each of which depends on 4,000 others.
DEPENDENCY = ",".join(f"afterany:{job_id}(unfulfilled)" for job_id in range(100_000, 104_000))
QUEUE = {"Dependency": DEPENDENCY, "Reason": "Dependency"}


def test_dependencies_on_thousands_of_jobs_blind_nothing(tmp_path: Path) -> None:
    assert 580 * len(DEPENDENCY) > LIMIT_BYTES

    seen = read(tmp_path, jobs=580, changes=QUEUE)

    assert (seen.jobs, seen.unread, seen.dependent) == (580, 0, 580)
    assert seen.more_mib < 10


def test_rows_above_their_bound_cost_no_other_job(tmp_path: Path) -> None:
    seen = read(tmp_path, jobs=1200, changes=QUEUE, obeys_widths=False)

    # The program prints one job in three without a dependency then.
    assert (seen.jobs, seen.unread, seen.dependent) == (400, 800, 0)
    assert seen.more_mib < 20


def test_answer_of_any_length_takes_the_memory_of_its_jobs(tmp_path: Path) -> None:
    nodes = ",".join(f"n{number:05}" for number in range(1, 30_000, 7))
    assert 3000 * len(nodes) > LIMIT_BYTES

    seen = read(tmp_path, jobs=3000, changes={"ExcNodes": nodes})

    assert (seen.jobs, seen.unread) == (3000, 0)
    assert seen.more_mib < 20
