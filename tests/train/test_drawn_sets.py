"""The judge on Slurm: which workloads, which rivals, and what is paired with what."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from advisor.domain.forecast import JobForecast
from advisor.domain.job import Job
from advisor.features.steps import climb, next_steps
from advisor.sim.run_outcome import End
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import Problem
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from tests.features.test_steps import jobs, supply
from tools.train import dl2, dl2_judge, size_env
from tools.train.dl2 import RECIPE, TEST_SEEDS, VALIDATION_SEEDS, SizeRun
from tools.train.dl2_judge import (
    DEFAULT,
    PRICE,
    SETS,
    DrawnSet,
    by_fit,
    by_network,
    by_share,
    judged,
    noisy_speeds,
    sized,
    table,
)
from tools.train.judge import app
from tools.train.networks import PerOption
from tools.train.size_env import SHIFTED, TRAINING
from tools.train.sizer import SpeedOf, by_price, by_score, true_speeds
from tools.train.training import train

ROOT = Path(__file__).parents[2]
FEW = replace(TRAINING, jobs=24)
TINY = replace(RECIPE, episodes=4, warm_updates=2, updates=2, steps=8, batch=16, replay=16, value_first=0)


def on_few_jobs(patched: pytest.MonkeyPatch) -> None:
    """Train and judge on few jobs, by a recipe that takes a second."""
    patched.setattr(size_env, "TRAINING", FEW)
    patched.setattr(dl2, "VALIDATION_SEEDS", range(2))
    book = replace(dl2.BOOK, recipes={"dl2": TINY})
    for module in (dl2, dl2_judge):
        patched.setattr(module, "BOOK", book)
    drawn = DrawnSet(words="workloads", seeds=range(40, 44), ranges=FEW)
    patched.setattr(dl2_judge, "SETS", {"drawn": drawn})


@pytest.fixture(name="trained", scope="module")
def _trained(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Make two finished runs of the recipe and one without a warm-up."""
    out = tmp_path_factory.mktemp("runs")
    recipes = {"first": (TINY, 1), "second": (TINY, 2), "cold": (replace(TINY, warm_updates=0), 1)}
    with pytest.MonkeyPatch.context() as patched:
        on_few_jobs(patched)
        for name, (recipe, seed) in recipes.items():
            train(SizeRun(recipe, "price", seed, every=(2, 2)), out / name, lambda *_: None)
    return [out / name for name in recipes]


@pytest.fixture(name="runs")
def _runs(trained: list[Path], monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    on_few_jobs(monkeypatch)
    return trained


def test_no_workload_is_in_two_sets() -> None:
    ranges = [VALIDATION_SEEDS, TEST_SEEDS, *(one.seeds for one in SETS.values())]

    seeds = [seed for one in ranges for seed in one]
    assert len(seeds) == len(set(seeds)) and min(seeds) >= 1_000_000
    # Test decisions have seeds from 3,000,000 on.
    assert all(one.seeds[0] >= 4_000_000 and len(one.seeds) >= 30 for one in SETS.values())


def test_shifted_workloads_lie_outside_of_those_of_training() -> None:
    drawn = {seed: size_env.workload(seed, SHIFTED) for seed in range(8)}

    nodes = [sum(group.count for group in one.cluster.nodes) for one in drawn.values()]
    assert min(nodes) > TRAINING.nodes[1]
    for seed, one in drawn.items():
        rows = one.trace.jobs
        work = float((rows["run_time_s"] * rows["gpus"]).sum())
        load_ratio = work / one.cluster.gpus / float(rows["submit_time"][-1])
        low, high = TRAINING.load_ratios[0]
        assert load_ratio < low + 0.05 if seed % 2 == 0 else load_ratio > high - 0.05


def test_rows_are_paired_by_workload_and_finished_runs_are_kept(runs: list[Path], tmp_path: Path) -> None:
    results = judged("drawn", runs, store=tmp_path / "store")
    kept = (tmp_path / "store" / "results.jsonl").read_text()
    again = judged("drawn", runs, store=tmp_path / "store")

    rows = {row["name"]: row for row in results["rows"]}
    default, price, both, cold = (rows[name] for name in (DEFAULT, PRICE, "dl2", "dl2, warm_updates=0"))
    assert default["against"]["mean_jct_s"] == {"percent": 0.0, "low": 0.0, "high": 0.0}
    assert both["seeds"] == 2 and set(both["by_seed"]) == {"1", "2"}
    assert (both["beside"], cold["beside"], cold["seeds"]) == (PRICE, "dl2", 1)
    assert rows["warm-up alone, dl2, 2 updates, taught by price"]["beside"] == PRICE
    plain = [
        simulate(drawn.trace, drawn.cluster, sized(by_score(by_price)), seed=seed, options=dl2_judge.OPTIONS)
        for seed, drawn in ((seed, size_env.workload(seed, FEW)) for seed in range(40, 44))
    ]
    ended = [run.outcomes["end_time"] - run.trace.jobs["submit_time"] for run in plain]
    means = [times[run.outcomes["end"] == End.FINISHED].mean() for times, run in zip(ended, plain, strict=True)]
    assert price["mean_jct_s"] == pytest.approx(np.mean(means))
    assert again == results and (tmp_path / "store" / "results.jsonl").read_text() == kept
    assert json.loads(json.dumps(results)) == results
    assert table(results).count("\n") == 1 + len(rows)


def test_the_judge_writes_all_sets_and_draws_the_curves(runs: list[Path], tmp_path: Path) -> None:
    given_runs = [word for run in runs for word in ("--runs", str(run))]
    files = ["--out", str(tmp_path / "out.json"), "--picture", str(tmp_path / "curves.svg")]

    ran = CliRunner().invoke(app, ["dl2", "--setting", "slurm", "--traces", "3", *given_runs, *files])

    assert ran.exit_code == 0
    assert set(json.loads((tmp_path / "out.json").read_text())) == {"drawn"}
    assert (tmp_path / "curves.svg").read_text().count("warm-up ends") == 1


@given(idle=st.integers(0, 64), seed=st.integers(0, 9))
def test_shares_and_fits_take_no_more_than_the_idle_gpus(idle: int, seed: int) -> None:
    asked = np.random.default_rng(seed).integers(2, 17, 4).tolist()
    table_of_jobs = jobs(*((1, size, 16) for size in asked))

    for score in (by_share, by_fit):
        rung = climb(table_of_jobs, supply(idle=idle, wanted=0.0), by_score(score))
        sizes = np.take_along_axis(table_of_jobs.sizes, rung[:, None], axis=1)[:, 0]
        assert sizes.sum() <= max(idle, 4)


def test_shares_are_equal_and_the_best_fit_is_the_shortest() -> None:
    two = jobs((1, 8, 8), (1, 8, 8))
    uneven = replace(two, run_s=two.run_s * [1.0, 9.0])

    shared, fitted = (
        climb(table_of_jobs, supply(idle=8.0), by_score(score))
        for table_of_jobs, score in ((two, by_share), (uneven, by_fit))
    )

    assert two.sizes[0, shared].tolist() == [4.0, 4.0]
    assert two.sizes[0, fitted][0] > two.sizes[0, fitted][1]


def test_a_network_scores_the_steps_that_are_legal() -> None:
    torch.manual_seed(1)
    network, table_of_jobs = PerOption(14, 8), jobs((1, 4, 8), (2, 2, 2))
    steps = next_steps(table_of_jobs, supply(), table_of_jobs.first)

    scores = by_network(network)(steps, supply())

    with torch.no_grad():
        expected = network(torch.from_numpy(steps.columns[steps.is_legal].astype(np.float32))).numpy()
    assert scores[steps.is_legal].tolist() == expected.tolist()
    assert (scores[~steps.is_legal] == -np.inf).all()


def test_noisy_speeds_are_off_by_their_error_and_the_same_for_all_policies() -> None:
    seen: dict[int, list[tuple[JobForecast, JobForecast]]] = {}
    asked: dict[int, int | None] = {}

    def watched(problem: Problem, cluster: SimulatedSlurm) -> SpeedOf:
        exact, noisy = true_speeds(problem, cluster), noisy_speeds(0.1)(problem, cluster)

        def speed_of(job: Job) -> JobForecast:
            asked[job.job_id] = job.gang.gpu_count
            seen.setdefault(job.job_id, []).append((exact(job), noisy(job)))
            return noisy(job)

        return speed_of

    drawn = size_env.workload(3, FEW)
    for score in (by_share, by_fit):
        simulate(drawn.trace, drawn.cluster, sized(by_score(score), speeds=watched), seed=3)

    assert max(len(pairs) for pairs in seen.values()) == 2
    for job_id, pairs in seen.items():
        ratios = [
            {place: noisy.speed_by_placement[place].median / speed.median for place, speed in exact.items()}
            for exact, noisy in ((right.speed_by_placement, off) for right, off in pairs)
        ]
        assert ratios[0] == ratios[-1]
        assert {round(ratio, 6) for place, ratio in ratios[0].items() if place.gpus == asked[job_id]} == {1.0}
        assert {round(ratio, 6) for place, ratio in ratios[0].items() if place.gpus != asked[job_id]} <= {0.9, 1.1}


def test_the_page_shows_the_results_that_are_kept() -> None:
    results = json.loads((ROOT / "tools/train/results/slurm.json").read_text(encoding="utf-8"))

    page = (ROOT / "docs/dl2.md").read_text(encoding="utf-8")
    assert results.keys() == SETS.keys()
    assert all(table(of_set) in page for of_set in results.values())
