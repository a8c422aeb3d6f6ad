"""The judge: what it compares, and with what."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tools.train.dl2_env import job_times
from tools.train.dl2_published import (
    BOOK,
    RECIPES,
    TEST_SEEDS,
    VALIDATION_SEEDS,
    PublishedRun,
    draw,
    judged,
    table,
)
from tools.train.dl2_rules import TEACHERS
from tools.train.dl2_setting import Published
from tools.train.imitation import Recipe
from tools.train.judge import app
from tools.train.training import train

ROOT = Path(__file__).parents[2]
SMALL = Published(nodes=4, jobs=5, window=4, cap=5)
TINY = replace(RECIPES["published"], warm_updates=5, replay=128, episodes=4, batch=16, updates=4)


def trained(folder: Path, recipe: Recipe, seed: int) -> None:
    train(PublishedRun(SMALL, recipe, "drf", seed, (5, 4)), folder, lambda *_: None)


def test_no_trace_is_in_two_sets() -> None:
    assert len(TEST_SEEDS) >= 30
    assert max(VALIDATION_SEEDS) < min(TEST_SEEDS) and min(VALIDATION_SEEDS) >= 1_000_000


def test_names_of_changed_recipes() -> None:
    assert BOOK.name_of({"recipe": asdict(RECIPES["ours"]), "teacher": "drf"}) == "ours"
    assert BOOK.name_of({"recipe": asdict(replace(RECIPES["ours"], gae=0.5)), "teacher": "drf"}) == "ours, gae=0.5"
    partial = replace(RECIPES["undiscounted"], has_replay=False)
    assert (
        BOOK.name_of({"recipe": asdict(partial), "teacher": "fifo"}) == "undiscounted, has_replay=False, taught by fifo"
    )


def test_rows_are_paired_by_trace(tmp_path: Path) -> None:
    for seed in (1, 2):
        trained(tmp_path / f"whole-{seed}", TINY, seed)
        trained(tmp_path / f"part-{seed}", replace(TINY, has_value=False), seed)
    seeds = TEST_SEEDS[:4]

    results = judged(SMALL, sorted(tmp_path.iterdir()), seeds)

    rows = {row["name"]: row for row in results["rows"]}
    whole, part = (rows[name] for name in rows if "updates=4" in name)
    drf = job_times(replace(SMALL, window=5), TEACHERS["drf"](SMALL, 0).act, seeds).mean()
    assert rows["drf"]["mean_jct"] == pytest.approx(drf)
    assert rows["drf"]["drf"]["percent"] == 0.0
    assert whole["seeds"] == part["seeds"] == 2 and set(whole["by_seed"]) == {"1", "2"}
    assert whole["drf"]["low"] <= whole["drf"]["percent"] <= whole["drf"]["high"]
    assert json.loads(json.dumps(results)) == results
    assert table(results).count("\n") == 1 + len(rows)


def test_warm_up_alone_is_judged_where_it_is_that_of_a_recipe(tmp_path: Path) -> None:
    warm = replace(RECIPES["ours"], updates=0, warm_updates=2, replay=128, episodes=4)
    long = replace(RECIPES["undiscounted"], updates=0, warm_updates=9, warm_decay=True)
    for name, recipe in (("ours", replace(RECIPES["ours"], warm_updates=7)), ("other", warm), ("long", long)):
        (tmp_path / name).mkdir()
        described = {"recipe": asdict(recipe), "teacher": "fifo"}
        (tmp_path / name / "run.json").write_text(json.dumps(described))

    named = dict(BOOK.policies(tmp_path / "ours"))

    assert named == {
        "warm-up alone, ours, 7 updates, taught by fifo": "warm.pt",
        "ours, warm_updates=7, taught by fifo": "policy.pt",
    }
    assert BOOK.policies(tmp_path / "other") == []
    assert dict(BOOK.policies(tmp_path / "long")) == {
        "warm-up alone, published, 9 updates at a decreasing rate, taught by fifo": "warm.pt"
    }


def test_curves_are_drawn_beside_rules(tmp_path: Path) -> None:
    trained(tmp_path / "run", TINY, 1)

    draw(SMALL, [tmp_path / "run"], tmp_path / "curves.svg")

    assert (tmp_path / "curves.svg").read_text().count("warm-up ends") == 1


def test_another_setting_is_refused(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["dl2", "--runs", str(tmp_path), "--setting", "testbed"])

    assert ran.exit_code == 2


def test_the_page_shows_the_results_that_are_kept() -> None:
    results = json.loads((ROOT / "tools/train/results/published.json").read_text(encoding="utf-8"))

    assert table(results) in (ROOT / "docs/dl2.md").read_text(encoding="utf-8")
