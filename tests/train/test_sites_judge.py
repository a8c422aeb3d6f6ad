"""Judges policies for sites: rows, and changes against the best rival."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.train import judging, metarl_judge
from tools.train.drawn_sites import TRAINING, Change
from tools.train.imitation import recipe_of
from tools.train.metarl import BOOK, RECIPE, MetarlRun
from tools.train.metarl_judge import SETS, SiteTask, judged, measured, table, tasks_of
from tools.train.training import read_description, train

SMALL = replace(TRAINING, servers=4, jobs_per_gpu=0.5, leaf_servers=(2,))


def silent(_text: str) -> None:
    """Print nothing."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the folders of short runs of two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    short = replace(RECIPE, warm_updates=1, updates=1, episodes=2, replay=16, steps=4, batch=8)

    def finished(name: str, seed: int) -> Path:
        run = MetarlRun(short, "cheapest", seed, every=(1, 1), family=SMALL, seeds=[1_000_000])
        train(run, folder / name, lambda *_: None)
        return folder / name

    return [finished("one", 1), finished("two", 2)]


@pytest.fixture
def few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workloads be short, and play them in this process, where they are."""

    def inline(tasks: Mapping[str, Any], play: Callable[[Any], Any], *_: object) -> Iterator[tuple[str, Any]]:
        return ((key, play(task)) for key, task in tasks.items())

    monkeypatch.setattr(judging, "run_tasks", inline)
    for module, name, value in (
        (metarl_judge, "JOBS_UNDISTURBED", 16),
        (metarl_judge, "JOBS_CHANGED", 20),
        (metarl_judge, "FIRST", 8),
    ):
        monkeypatch.setattr(module, name, value)


def named(short: Callable[[dict[str, Any]], Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Map names of rows to something of them."""
    return {row["name"]: short(row) for row in rows}


@pytest.mark.usefixtures("few_jobs")
def test_judge_plays_every_row_on_the_same_workloads(runs: list[Path]) -> None:
    # Recipes of short runs depart from the whole one, so that they are named by what differs.
    tasks = list(tasks_of(replace(SETS[0], workloads=1), runs))

    rows = {task.row.partition("/")[0] for task in tasks}

    assert {"load balancing", "best fit", "Tetris", "least interference", "marl, frozen", "plain Slurm"} <= rows
    assert {task.seed for task in tasks} == {7_000_000}


@pytest.mark.usefixtures("few_jobs")
@pytest.mark.parametrize("row", ["metarl/1", metarl_judge.NOT_ADAPTED, metarl_judge.ORACLE])
@pytest.mark.parametrize("change", [Change.NONE, Change.TYPES])
def test_row_measures_the_jobs_after_a_change(row: str, change: Change, runs: list[Path]) -> None:
    figures = measured(SiteTask(seed=7_000_001, change=change, row=row, run=runs[0]))

    assert figures["mean_jct_s"] > 0.0
    assert (figures["first_jct_s"] > 0.0) is (change is Change.TYPES)


@pytest.mark.usefixtures("few_jobs")
@pytest.mark.parametrize(
    "row", [metarl_judge.MARL, metarl_judge.RULE_NIGHTLY, metarl_judge.SLURM, metarl_judge.DEFAULT]
)
def test_rival_plays_without_a_run(row: str) -> None:
    assert measured(SiteTask(seed=7_000_001, change=Change.NONE, row=row))["mean_jct_s"] > 0.0


@pytest.mark.usefixtures("few_jobs")
def test_changes_are_paired_by_workload_and_against_the_best_rival(
    monkeypatch: pytest.MonkeyPatch, runs: list[Path], tmp_path: Path
) -> None:
    monkeypatch.setattr(metarl_judge, "BOOK", replace(BOOK, recipes={"metarl": recipe_of_run(runs[0])}))

    results = judged([replace(SETS[1], workloads=2)], runs, tmp_path, 1, silent)

    whole = results["changed"]
    hours = named(lambda row: row["hours"], whole["rows"])
    assert whole["workloads"] == 2
    assert hours[whole["rival"]] == min(hours[name] for name in metarl_judge.RIVALS if name in hours)
    assert named(lambda row: row["seeds"], whole["rows"])["metarl"] == 2
    assert named(lambda row: row["regret_h"], whole["rows"])[metarl_judge.ORACLE] == 0.0
    assert f"changed, 2 workloads, against {whole['rival']}" in table(results)
    assert {name for name in results if name.startswith("changed: ")} == {
        f"changed: {change}" for change in (Change.MODELS, Change.LOAD)
    }


def recipe_of_run(run: Path) -> Any:
    """Return the recipe of a run."""
    return recipe_of(read_description(run)["recipe"])
