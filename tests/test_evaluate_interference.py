"""The judgement of forecasts of interference: what is fitted on, what is judged, what is refused."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from advisor.errors import ConfigError
from advisor.fit.interference_files import GANG_PAIRS, GPU_PAIRS, MeasuredSpeed, read_sides
from advisor.predict.interference_items import Shared
from tests.fit.interference_tables import (
    DEEPSHARE,
    GAVEL,
    LUCID,
    LUCID_SINGLES,
    NEED_BY_MODEL,
    deepshare_rows,
    gavel_rows,
    speed_beside,
    write,
)
from tools.evaluate.__main__ import app
from tools.evaluate.interference_errors import evaluate
from tools.evaluate.score_report import Report, repeated

# Each fits or judges models.
pytestmark = pytest.mark.slow

DATA = Path(os.environ.get("SADVISE_DATA", ""), "interference")


def run(*arguments: str | Path) -> dict[str, object]:
    """Run the command and return what it prints as JSON; errors are raised."""
    result = CliRunner().invoke(app, ["interference", *map(str, arguments), "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def errors_by_name(report: Report) -> dict[str, float]:
    """Return mean errors by the name of the predictor."""
    return {each.name: each.mean_error for each in report.scores}


def test_pairs_left_out_are_forecast_better_than_by_means(tmp_path: Path) -> None:
    sides = read_sides(write(tmp_path, GAVEL, gavel_rows()), GPU_PAIRS)

    report = evaluate(sides, sides, shared=Shared.GPU, folds=4)

    errors = errors_by_name(report)
    assert report.test_rows == len(sides)
    assert errors["forecast"] < 0.02
    assert errors["forecast"] < errors["model + model"] < errors["mean of all"] < errors["no interference"]
    # The made-up pairs run alike on both GPU types.
    assert errors["the same pair on another GPU type"] < 0.02 < errors["mean of each of the two models"]
    assert report.scores[0].flagged == 0.0
    assert {"forecast, on v100", "forecast, gamma slowed"} <= set(errors)


def test_models_left_out_are_flagged(tmp_path: Path) -> None:
    sides = read_sides(write(tmp_path, GAVEL, gavel_rows()), GPU_PAIRS)

    report = evaluate(sides, sides, shared=Shared.GPU, unseen_models=True)

    assert report.scores[0].flagged == 1.0
    assert report.test_rows > len(sides)


def test_fit_sees_nothing_of_the_speeds_that_are_judged(tmp_path: Path) -> None:
    sides = read_sides(write(tmp_path, DEEPSHARE, deepshare_rows()), GANG_PAIRS)
    train, test = sides[::2], sides[1::2]
    changed = [
        MeasuredSpeed(mine=side.mine, other=side.other, speed=0.01 + 0.001 * row) for row, side in enumerate(test)
    ]

    reports = [evaluate(train, each, shared=Shared.NODE) for each in (test, changed)]

    # Errors of the forecasts differ by what was changed of the measurements alone: the forecasts are the same.
    said = [np.array([side.speed for side in each]) for each in (test, changed)]
    lowest = float(np.abs(said[0] - said[1]).mean())
    assert reports[1].scores[0].mean_error == pytest.approx(lowest, abs=2 * reports[0].scores[0].mean_error)


def test_rows_that_were_fitted_on_are_not_judged(tmp_path: Path) -> None:
    sides = read_sides(write(tmp_path, DEEPSHARE, deepshare_rows()), GANG_PAIRS)

    report = evaluate(sides[:80], list(sides[60:]), shared=Shared.NODE)

    assert report.test_rows == 20
    assert report.left_out == {"also in the files to fit on": 20}


def test_sides_that_were_not_measured_are_counted_with_a_reason(tmp_path: Path) -> None:
    gavel = write(tmp_path, GAVEL, [*gavel_rows(), "v100,A,16,B,32,10,4,0,0", "v100,A,16,B,32,0,4,5,2"], name="g.csv")
    rows = deepshare_rows()
    deepshare = write(tmp_path, DEEPSHARE, [*rows, *(f"{row[:-1]}1" for row in rows[:7])], name="d.csv")

    pairs = run("--format", "gavel", "--train", gavel, "--test", gavel, "--folds", "3")
    gangs = run("--format", "deepshare", "--train", deepshare, "--test", deepshare, "--folds", "3")

    assert pairs["test_rows"] == 2 * len(gavel_rows()) and pairs["left_out"] == {"of pairs that did not run": 4}
    assert gangs["test_rows"] == len(rows) and gangs["left_out"] == {"extrapolated, not measured": 7}


@pytest.mark.parametrize("same", [True, False], ids=["one set", "copy"])
def test_nothing_left_to_judge_is_an_error(tmp_path: Path, same: bool) -> None:
    sides = read_sides(write(tmp_path, DEEPSHARE, deepshare_rows()), GANG_PAIRS)

    with pytest.raises(ConfigError, match="not fitted on"):
        evaluate(sides, sides if same else list(sides), shared=Shared.NODE)


def test_command_takes_several_files_after_one_option(tmp_path: Path) -> None:
    names = list(NEED_BY_MODEL)
    first = write(tmp_path, GAVEL, gavel_rows(names[:3]), name="first.csv")
    second = write(tmp_path, GAVEL, gavel_rows(names[2:]), name="second.csv")
    test = write(tmp_path, GAVEL, gavel_rows([names[0], names[4]]), name="test.csv")

    found = run("--format", "gavel", "--train", first, second, "--test", test)

    assert found["train_rows"] == 2 * (42 + 42)


def test_options_are_repeated_for_each_file() -> None:
    assert repeated(["--train", "a", "b", "--json", "--test", "c"]) == [
        "--train", "a", "--train", "b", "--json", "--test", "c",
    ]  # fmt: skip


def test_lucid_pairs_and_singles_are_judged(tmp_path: Path) -> None:
    models = list(NEED_BY_MODEL)
    jobs = [(model, batch) for model in models for batch in (64, 128)]
    pairs = write(
        tmp_path,
        LUCID,
        [
            f"{a},C,1,{x},0,{speed_beside(a, b):.3f},{b},C,1,{y},0,{speed_beside(b, a):.3f},90,50,3000"
            for at, (a, x) in enumerate(jobs)
            for b, y in jobs[at:]
        ],
    )
    singles = write(
        tmp_path,
        LUCID_SINGLES,
        [f"{model},C,{batch},0,{1000 / batch},{100 * NEED_BY_MODEL[model]},30,1500,x" for model, batch in jobs],
        name="singles.csv",
    )

    seen = run("--format", "lucid", "--train", pairs, "--test", pairs, "--singles", singles, "--folds", "3")
    unseen = run("--format", "lucid", "--train", pairs, "--test", pairs, "--singles", singles, "--unseen-models")

    assert seen["scores"][0]["mean_error"] < 0.02  # type: ignore[index]
    assert unseen["scores"][0]["mean_error"] < unseen["scores"][2]["mean_error"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(["--format", "csv"], "--format csv", id="form"),
        pytest.param(["--format", "gavel", "--folds", "1"], "--folds 1", id="one fold"),
        pytest.param(["--format", "gavel", "--folds", "3", "--unseen-models"], "excludes", id="both"),
        pytest.param(["--format", "gavel", "--folds", "3"], "one set of files", id="two sets"),
        pytest.param(["--format", "deepshare"], "column model is missing", id="other form"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: list[str], said: str) -> None:
    train = write(tmp_path, GAVEL, gavel_rows(), name="train.csv")
    test = write(tmp_path, GAVEL, gavel_rows(), name="test.csv")

    with pytest.raises(ConfigError, match=said):
        run(*options, "--train", train, "--test", test)


def test_tables_in_which_no_pair_ran_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, GAVEL, ["v100,A,16,B,32,10,4,0,0"])

    with pytest.raises(ConfigError, match="no pair that ran"):
        run("--format", "gavel", "--train", path, "--test", path, "--folds", "2")


@pytest.mark.needs("measurements")
def test_published_pairs_are_forecast_within_the_documented_errors() -> None:
    path = DATA / "gavel_pairs.csv"

    found = run("--format", "gavel", "--train", path, "--test", path, "--folds", "5")

    by_name = {score["name"]: score for score in found["scores"]}  # type: ignore[attr-defined]
    assert by_name["forecast, on k80"]["mean_error"] < 0.04
    # The speeds of pairs on V100 do not add up: nothing there is said to be known.
    assert by_name["forecast, on v100"]["flagged"] == 1.0
