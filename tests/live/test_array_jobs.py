"""Simulations and training as job arrays on live Slurm: results equal local ones, also where jobs and a node die."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.errors import SimulationError
from advisor.sim.study import engines
from advisor.sim.study.result import RunResult, Store
from advisor.sim.study.sweep import run_sweep
from advisor.sim.traces.trace_file import write_trace
from tests.live.conftest import started
from tests.programs import killed_after
from tests.sim.runs import eight_cells, expected, failing_beside_others, random_trace, released, same
from tools.stage import LiveCluster, uniform_cluster

# The nodes of the other releases are roots of their own, without the Python of the tests.
pytestmark = [pytest.mark.live, pytest.mark.releases("22.05"), pytest.mark.xdist_group("array jobs")]

LONGEST_S = 240.0
# Slurm holds a requeued job back for as long as its credential lives.
CREDENTIAL_S = 20
# In MiB, less than half of a node and more than a third.
TWO_AT_ONCE = {"SBATCH_MEM_PER_NODE": "30000"}
RUNS = """
[[runs]]
name = "quick"
seeds = "1-2"
set = { updates = 0, warm_updates = 1, replay = 64, episodes = 2, hidden = [8] }
"""


@pytest.fixture(scope="module")
def live(release: str) -> Iterator[LiveCluster]:
    with started(uniform_cluster(release, 2, cred_expire_s=CREDENTIAL_S)) as cluster:
        yield cluster


def sadvise(*words: str) -> list[str]:
    return [sys.executable, "-m", "advisor.cli.main", *words]


def sweep(folder: Path, out: str, *more: str) -> list[str]:
    words = ["sweep", str(folder / "runs.toml"), "--out", str(folder / out), *more]
    return [sys.executable, "-m", "tools.train.dl2", *words]


@contextmanager
def disturbed(live: LiveCluster, argv: list[str], complaints: Path, **variables: str) -> Iterator[None]:
    """Run a command, which loses a job of its array in the block and then has to fail by itself."""
    for node in ("n01", "n02"):
        # Slurm refuses this of a node that is up.
        live.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
    with (
        complaints.open("w") as stderr,
        subprocess.Popen(argv, env={**live.env, **variables}, stdout=subprocess.DEVNULL, stderr=stderr) as first,
        killed_after(first),
    ):
        yield
        assert first.wait(LONGEST_S) in {1, 2}


def ended(argv: list[str], live: LiveCluster | None = None) -> str:
    """Run a command on this machine or on Slurm, and return what it prints."""
    env = None if live is None else live.env
    end = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    assert end.returncode == 0, end.stderr
    return end.stdout


def running(live: LiveCluster) -> list[tuple[str, str]]:
    """Return the running jobs, each with its node."""
    lines = live.run("squeue", "-h", "-t", "R", "-o", "%i %N").splitlines()
    return [(job, node) for job, node in map(str.split, lines)]


def killed_one(live: LiveCluster, out: Path) -> tuple[str, str]:
    """Cancel a job that has begun to write, as one that is cancelled earlier leaves no word; return it and its node."""

    def begun() -> list[tuple[str, str]]:
        return [
            (job, node)
            for job, node in running(live)
            if any(log.stat().st_size for log in out.glob(f"slurm/*/{job}_0_log.out"))
        ]

    live.wait_for(lambda: bool(begun()), 60.0, what="a job has begun")
    job, node = begun()[-1]
    live.run("scancel", job)
    return job, node


def kept(store: Path) -> list[RunResult]:
    """Return the runs of a store in the order of their keys, without what they cost."""
    return [
        replace(run, summary=replace(run.summary, wall_s=0.0, jobs_per_s=0.0, peak_rss_mib=0.0))
        for _, run in sorted(Store(store).load().items())
    ]


def test_comparison_outlives_killed_jobs_and_a_dead_node_and_finds_what_one_machine_finds(
    live: LiveCluster, tmp_path: Path
) -> None:
    write_trace(random_trace(200), tmp_path / "trace.csv")
    words = ["compare", str(tmp_path / "trace.csv"), "--cluster", "nodes=2,gpus=8", "--seeds", "3", "--store"]
    argv = sadvise(*words, str(tmp_path / "store"), "--engine", "slurm")
    with disturbed(live, argv, tmp_path / "err", **TWO_AT_ONCE):
        killed, node = killed_one(live, tmp_path / "store")
        requeued = next(job for job, other in running(live) if other == node and job != killed)
        live.run("scontrol", "requeue", requeued)
        dead = next(other for _, other in running(live) if other != node)
        live.run("scontrol", "update", f"NodeName={dead}", "State=DOWN", "Reason=test")
    first = len(kept(tmp_path / "store"))

    again = ended(argv, live)
    local = ended(sadvise(*words, str(tmp_path / "local"), "--workers", "1"))

    assert re.search(r"1 of 6 jobs on Slurm ended without a result, .* CANCELLED ", (tmp_path / "err").read_text())
    assert first == 5
    # The second array has the one job that was lost.
    assert len(list((tmp_path / "store" / "slurm").glob("*/*_submitted.pkl"))) == 6 + 1
    assert again == local
    assert same(kept(tmp_path / "store"), kept(tmp_path / "local"))


def test_search_on_slurm_outlives_a_killed_job_and_a_dead_node_and_finds_what_one_machine_finds(
    live: LiveCluster, tmp_path: Path
) -> None:
    words = ["tune", "--demo", "--no-slurm", "--repeats", "2", "--jobs", "20", "--json"]
    argv = sadvise(*words, "--engine", "slurm", "--store", str(tmp_path / "store"))
    with disturbed(live, argv, tmp_path / "err"):
        _, node = killed_one(live, tmp_path / "store")
        dead = next(other for _, other in running(live) if other != node)
        live.run("scontrol", "update", f"NodeName={dead}", "State=DOWN", "Reason=test")
    first = len(kept(tmp_path / "store"))

    again, local = json.loads(ended(argv, live)), json.loads(ended(sadvise(*words)))

    # Settings one at a time are an array, and several at once are another after it.
    assert re.search(r"1 of 36 jobs on Slurm ended without a result, .* CANCELLED ", (tmp_path / "err").read_text())
    assert first == 35
    assert again == local


@pytest.mark.needs("torch")
def test_training_on_slurm_outlives_a_killed_job_and_ends_with_the_weights_of_one_machine(
    live: LiveCluster, tmp_path: Path
) -> None:
    (tmp_path / "runs.toml").write_text(RUNS)
    argv = sweep(tmp_path, "on-slurm", "--engine", "slurm")
    with disturbed(live, argv, tmp_path / "err"):
        killed_one(live, tmp_path / "on-slurm")
    first = len(weights(tmp_path / "on-slurm"))

    ended(argv, live)
    ended(sweep(tmp_path, "local"))

    assert "CANCELLED" in (tmp_path / "err").read_text() and first == 1
    assert weights(tmp_path / "on-slurm") == weights(tmp_path / "local") and len(weights(tmp_path / "local")) == 2


@pytest.mark.needs("torch")
@pytest.mark.usefixtures("on_slurm")
def test_judge_on_slurm_measures_what_one_machine_measures(tmp_path: Path) -> None:
    from tools.train.drawn_gangs import Scale
    from tools.train.judging import play_all
    from tools.train.marl_judge import GangTask, measured

    scale = Scale(agents=(1,), servers_each=(4,), jobs_per_gpu=1.0)
    tasks = [GangTask(scale=scale, seed=seed, row="Tetris") for seed in (1, 2)]
    told: list[str] = []

    played = play_all({"small": tasks}, measured, tmp_path / "store", 2, told.append, "slurm")

    here = [{"row": "Tetris", "seed": task.seed, **measured(task)} for task in tasks]
    assert [{**one, "cpu_s": 0.0} for one in played["small"]] == [{**one, "cpu_s": 0.0} for one in here]
    assert [line.partition(",")[0] for line in told] == ["1 of 2: Tetris", "2 of 2: Tetris"]


def weights(out: Path) -> dict[str, list[bytes]]:
    """Return the weights of the runs that have ended, by the name of the run."""
    from tools.train.training import read_weights

    return {
        file.parent.name: [tensor.numpy().tobytes() for tensor in read_weights(file).values()]
        for file in out.glob("*/warm.pt")
    }


@pytest.fixture
def on_slurm(live: LiveCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let this process submit, and see soon that jobs have gone; return the folder of `released`."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, live.env[name])
    monkeypatch.setenv("RELEASED_IN", str(tmp_path))
    monkeypatch.setattr(engines, "_LOOK_S", 1.0)
    return tmp_path


def test_job_that_is_warned_of_its_time_limit_goes_on_and_does_not_begin_again(
    live: LiveCluster, on_slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More than one array takes.
    monkeypatch.setattr(engines, "_MOST_IN_ARRAY", 2)
    cells = eight_cells()[:3]

    with ThreadPoolExecutor() as pool:
        results = pool.submit(run_sweep, cells, store=on_slurm / "store", engine="slurm", workers=5, simulate=released)
        live.wait_for(lambda: len(list(on_slurm.glob("began-*"))) == 2, 60.0)
        array, _, _ = running(live)[0][0].partition("_")
        live.run("scancel", "--signal=USR2", "--name=sadvise")
        (on_slurm / "go").touch()

    assert same(results.result(), expected(cells))
    assert re.findall(r"Restarts=(\d+)", live.run("scontrol", "show", "job", array)) == ["0", "0"]
    assert list((on_slurm / "store" / "traces").iterdir()) == []


def test_jobs_that_outlive_the_slurmd_of_their_node_count_and_do_not_run_again(
    live: LiveCluster, on_slurm: Path
) -> None:
    cells = eight_cells()[:2]

    with ThreadPoolExecutor() as pool:
        results = pool.submit(run_sweep, cells, store=on_slurm / "store", engine="slurm", workers=2, simulate=released)
        live.wait_for(lambda: len(list(on_slurm.glob("began-*"))) == 2, 60.0)
        nodes = {node for _, node in running(live)}
        for node in nodes:
            live.stop_slurmd(node)
            live.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
        live.wait_for(lambda: live.count("PENDING") == 2, what="Slurm has them wait to run again")
        (on_slurm / "go").touch()
    left = live.run("squeue", "-h", "-a")
    live.start_slurmd(*nodes)

    assert same(results.result(), expected(cells)) and left == ""


def test_failed_job_gets_one_line_and_the_others_are_cancelled(live: LiveCluster, on_slurm: Path) -> None:
    with pytest.raises(SimulationError) as caught:
        run_sweep(
            eight_cells()[:3], store=on_slurm / "store", engine="slurm", workers=4, simulate=failing_beside_others
        )

    assert "SimulationError: of 30, slurm, seed 1: cannot be: logs are under" in str(caught.value)
    assert "\n" not in str(caught.value)
    live.wait_for(lambda: not live.run("squeue", "-h", "-a"), 60.0, what="the jobs are cancelled")
