"""The judge of places pairs rows by workload, keeps what it played, and its page shows what it found."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from advisor.errors import ModelError
from advisor.features.observe.pointer import CHOICE_COLUMNS
from advisor.predict.library import Library
from advisor.predict.served_policy import ServedPlaces, open_policy
from tests.train.test_places import SMALL
from tools.train.drawn_gangs import TRAINING
from tools.train.imitation import deterministic
from tools.train.judge import app as judge_app
from tools.train.judging import change_of
from tools.train.marl import KIND, RECIPE, MarlRun, actor_of, checked_parity, publish_policy, to_onnx
from tools.train.marl import app as marl_app
from tools.train.marl_judge import FREE, ONE_AGENT, RIVALS, SETS, TAUGHT_BY, GangSet, judged, table, tasks_of
from tools.train.training import train

ROOT = Path(__file__).parent.parent.parent
TINY = GangSet(gpus=64, agents=1, workloads=3, is_seen=True, has_seeds=True, jobs_per_gpu=0.3)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds of a short training."""
    deterministic()
    folder = tmp_path_factory.mktemp("runs")
    short = replace(RECIPE, episodes=2, warm_updates=2, updates=1, steps=4, batch=8, replay=32)
    made = []
    for name, seed in (("a", 1), ("b", 2)):
        run = MarlRun(short, "best-fit", seed, every=(2, 1), validation=([1], SMALL))
        train(run, folder / name, lambda *_: None)
        described = json.loads((folder / name / "run.json").read_text())
        # It is named by its recipe, and this one is short for the test alone.
        described["recipe"] |= {field: getattr(RECIPE, field) for field in ("episodes", "warm_updates", "updates")}
        described["recipe"] |= {field: getattr(RECIPE, field) for field in ("steps", "batch", "replay")}
        (folder / name / "run.json").write_text(json.dumps(described))
        made.append(folder / name)
    return made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where what one test played is not played again by the next."""
    return tmp_path_factory.mktemp("store")


def test_rows_play_the_same_workloads_and_what_was_played_is_not_played_again(runs: list[Path], store: Path) -> None:
    said: list[str] = []

    first = judged([TINY], runs, store, 1, said.append)
    played = len(said)
    second = judged([TINY], runs, store, 1, said.append)

    rows = {row["name"]: row for row in first[TINY.name]["rows"]}
    assert first == second
    assert len(said) == played == len(list(tasks_of(TINY, runs)))
    assert {*RIVALS, TAUGHT_BY, FREE, "marl"} <= rows.keys()
    assert rows["marl"]["seeds"] == 2
    assert len(rows["marl"]["by_training_seed"]) == 2
    rival = first[TINY.name]["rival"]
    assert rows[rival]["against_rival"]["mean_jct_s"] == {"percent": 0.0, "low": 0.0, "high": 0.0}
    assert rows[FREE]["hours"] <= min(row["hours"] for row in rows.values()) + 1e-9
    assert f"| {TINY.name} | {TINY.workloads} | {rival} | " in table(first)


def test_one_agent_plays_the_workload_of_several(runs: list[Path], tmp_path: Path) -> None:
    chosen = replace(TINY, gpus=128, agents=2, workloads=1, has_seeds=False)

    rows = {row["name"]: row for row in judged([chosen], runs, tmp_path, 1, lambda _: None)[chosen.name]["rows"]}

    assert rows[ONE_AGENT]["seeds"] == 1
    assert rows[ONE_AGENT]["hours"] != rows["marl"]["hours"]


def test_change_is_the_mean_of_logarithms_with_students_interval() -> None:
    before, after = np.log([100.0, 200.0, 400.0]), np.log([50.0, 100.0, 200.0])

    change = change_of(before, after)

    assert change == pytest.approx({"percent": -50.0, "low": -50.0, "high": -50.0})


def test_sets_have_seeds_of_their_own() -> None:
    seeds = [seed for chosen in SETS for seed in chosen.seeds]

    assert len(set(seeds)) == len(seeds)
    assert min(seeds) >= 6_000_000
    assert all(chosen.scale.topologies == TRAINING for chosen in SETS if chosen.is_seen)


def test_published_policy_is_served_and_agrees_with_its_network(runs: list[Path], store: Path, tmp_path: Path) -> None:
    results = judged([TINY], runs, store, 1, lambda _: None)

    entry = publish_policy(
        runs[0], results, tmp_path / "models", "default-1", today="2026-11-24", sizes=(8, 24), least_rows=500
    )
    policy = open_policy(Library(tmp_path / "models", tmp_path / "none"), f"{KIND.removeprefix('policy-')}@default-1")

    assert isinstance(policy, ServedPlaces)
    assert entry.parity.max_error <= 1e-4
    assert entry.columns == CHOICE_COLUMNS


def test_graph_of_other_weights_is_not_published(runs: list[Path]) -> None:
    graph = to_onnx(actor_of(runs[0]))

    with pytest.raises(ModelError, match="off its network"):
        checked_parity(actor_of(runs[1]), graph, (8,), 500)


def test_page_shows_what_the_judge_found() -> None:
    results = json.loads((ROOT / "tools/train/results/places.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/marl.md").read_text(encoding="utf-8")

    assert table(results) in page


def test_folder_that_holds_no_run_and_damaged_results_are_one_line(runs: list[Path], tmp_path: Path) -> None:
    damaged = tmp_path / "results.json"
    damaged.write_text("{")

    judge = CliRunner().invoke(judge_app, ["marl", "--runs", str(tmp_path), "--store", str(tmp_path / "store")])
    publish = CliRunner().invoke(
        marl_app, ["publish", "--run", str(runs[0]), "--results", str(damaged), "--models", str(tmp_path / "models")]
    )

    for answer in (judge, publish):
        assert answer.exit_code == 2
        assert "cannot be read" in answer.output
        assert isinstance(answer.exception, SystemExit)
