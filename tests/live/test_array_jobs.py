"""Simulations and training as job arrays on live Slurm: results equal local ones, also where jobs and a node die."""

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
RUNS = """
[[runs]]
name = "quick"
seeds = "1-3"
set = { updates = 0, warm_updates = 1, replay = 64, episodes = 2, hidden = [8] }
"""


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
        # The latest: it is the least likely to end before it is cancelled.
        live.run("scancel", [job for job, node in running(live) if node != dead][-1])
        assert first.wait(LONGEST_S) == 1
    kept = len((tmp_path / "store" / "results.jsonl").read_text().splitlines())

    again = subprocess.run(argv, env=live.env, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    local = subprocess.run(tune(), capture_output=True, text=True, check=False, timeout=LONGEST_S)

    lost = re.search(r"1 of (\d+) jobs on Slurm ended without a result, .* CANCELLED ", (tmp_path / "err").read_text())
    assert lost is not None
    # Settings one at a time are an array, and several at once are another after it.
    assert kept == {"36": 35, "4": 39}[lost[1]]
    assert answer_of(again) == answer_of(local)


@pytest.mark.needs("torch")
def test_training_on_slurm_outlives_a_killed_job_and_ends_with_the_weights_of_one_machine(
    live: LiveCluster, tmp_path: Path
) -> None:
    (tmp_path / "runs.toml").write_text(RUNS)
    argv = sweep(tmp_path, "on-slurm", "--engine", "slurm")
    with (
        (tmp_path / "err").open("w") as complaints,
        subprocess.Popen(argv, env=live.env, stdout=subprocess.DEVNULL, stderr=complaints) as first,
        killed_after(first),
    ):
        live.wait_for(lambda: bool(running(live)), 60.0)
        live.run("scancel", running(live)[0][0])
        assert first.wait(LONGEST_S) != 0
    kept = len(weights(tmp_path / "on-slurm"))

    again = subprocess.run(argv, env=live.env, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    local = subprocess.run(sweep(tmp_path, "local"), capture_output=True, text=True, check=False, timeout=LONGEST_S)

    assert "CANCELLED" in (tmp_path / "err").read_text() and kept == 2
    assert again.returncode == local.returncode == 0, again.stderr + local.stderr
    assert weights(tmp_path / "on-slurm") == weights(tmp_path / "local") and len(weights(tmp_path / "local")) == 3


def sweep(folder: Path, out: str, *more: str) -> list[str]:
    words = ["sweep", str(folder / "runs.toml"), "--out", str(folder / out), *more]
    return [sys.executable, "-m", "tools.train.dl2", *words]


def weights(out: Path) -> dict[str, list[bytes]]:
    """Return the weights of the runs that have ended, by the name of the run."""
    from tools.train.training import read_weights

    return {
        file.parent.name: [tensor.numpy().tobytes() for tensor in read_weights(file).values()]
        for file in out.glob("*/warm.pt")
    }


def running(live: LiveCluster) -> list[tuple[str, str]]:
    """Return the running jobs, each with its node."""
    lines = live.run("squeue", "-h", "-t", "R", "-o", "%i %N").splitlines()
    return [(job, node) for job, node in map(str.split, lines)]
