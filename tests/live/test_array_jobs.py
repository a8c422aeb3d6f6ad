"""Simulations as jobs of an array on live Slurm: results equal to local ones, also where jobs and a node die."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.conftest import started
from tests.programs import killed_after
from tools.stage import LiveCluster, uniform_cluster

# The nodes of the other releases are roots of their own, without the Python of the tests.
pytestmark = [pytest.mark.live, pytest.mark.releases("22.05"), pytest.mark.xdist_group("array jobs")]

LONGEST_S = 240.0
# Slurm holds a requeued job back for as long as its credential lives.
CREDENTIAL_S = 20


@pytest.fixture(scope="module")
def live(release: str) -> Iterator[LiveCluster]:
    with started(uniform_cluster(release, 2, cred_expire_s=CREDENTIAL_S)) as cluster:
        yield cluster


def tune(*more: str) -> list[str]:
    words = ["--demo", "--no-slurm", "--repeats", "2", "--jobs", "20", "--json", *more]
    return [sys.executable, "-m", "advisor.cli.main", "tune", *words]


def answer_of(ended: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def test_search_on_slurm_outlives_a_killed_job_and_a_dead_node_and_finds_what_one_machine_finds(
    live: LiveCluster, tmp_path: Path
) -> None:
    argv = tune("--engine", "slurm", "--store", str(tmp_path / "store"))
    with (
        (tmp_path / "err").open("w") as complaints,
        subprocess.Popen(argv, env=live.env, stdout=subprocess.DEVNULL, stderr=complaints) as first,
        killed_after(first),
    ):
        live.wait_for(lambda: len(running(live)) > 1, 60.0)
        dead = running(live)[0][1]
        live.run("scontrol", "update", f"NodeName={dead}", "State=DOWN", "Reason=test")
        live.wait_for(lambda: any(node != dead for _, node in running(live)), 60.0)
        job = next(job for job, node in running(live) if node != dead)
        live.run("scancel", job)
        assert first.wait(LONGEST_S) == 1
    kept = len((tmp_path / "store" / "results.jsonl").read_text().splitlines())

    again = subprocess.run(argv, env=live.env, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    local = subprocess.run(tune(), capture_output=True, text=True, check=False, timeout=LONGEST_S)

    assert re.search(r"1 of 30 jobs on Slurm ended without a result, .* CANCELLED ", (tmp_path / "err").read_text())
    assert kept == 29
    assert answer_of(again) == answer_of(local)


def running(live: LiveCluster) -> list[tuple[str, str]]:
    """Return the running jobs, each with its node."""
    lines = live.run("squeue", "-h", "-t", "R", "-o", "%i %N").splitlines()
    return [(job, node) for job, node in map(str.split, lines)]
