"""The judgement of the performance model: on which rows, beside what, what is refused."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from advisor.errors import ConfigError
from advisor.fit.interference_files import RelativeSpeeds, measured, read_sides
from advisor.predict.interference_items import Shared
from tests.fit.interference_tables import DEEPSHARE, NEED_BY_MODEL, deepshare_rows, speed_beside, write
from tools.evaluation import performance
from tools.evaluation.new_site import elsewhere_prior, new_site_report
from tools.evaluation.performance import INTERFERENCE, MODEL, compare_rows, read_pairs, report_of
from tools.evaluation.performance_rows import models_in, samples_of
from tools.evaluation.report import Report
from tools.evaluation.type_speeds import MEANS, SAME, type_report

# Each fits or judges models.
pytestmark = pytest.mark.slow

ISOLATED = ("gpu_type", "consolidated", "model", "batch_size", "scale_factor", "steps_per_s_physical_file")


def run(*arguments: str | Path) -> dict[str, object]:
    """Run the command and return what it prints as JSON; errors are raised."""
    app = typer.Typer()
    app.callback()(lambda: None)
    performance.add_to(app)
    result = CliRunner().invoke(app, ["performance", *map(str, arguments), "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    printed: dict[str, object] = json.loads(result.stdout)
    return printed


def table_of(folder: Path, rows: Sequence[str] | None = None) -> RelativeSpeeds:
    """Return made pairs as a table."""
    path = write(folder, DEEPSHARE, deepshare_rows() if rows is None else rows)
    return measured(read_sides(path, "deepshare"), Shared.NODE)


def errors_by_name(report: Report) -> dict[str, float]:
    """Return mean errors by the name of the forecast."""
    return {score.name: score.mean_error for score in report.scores}


def type_rows(factor_by_model: dict[str, float], batches: Sequence[int] = (16, 32, 64)) -> list[str]:
    """Return speeds of models that are slower on the K80 by a factor, a little more so at large batches."""
    return [
        f"{gpu_type},1,{model},{batch},1,{speed * 100 / batch}"
        for model, factor in factor_by_model.items()
        for batch in batches
        for gpu_type, speed in (("v100", 1.0), ("k80", factor * (batch / 32) ** 0.02))
    ]


def test_pairs_left_out_are_forecast_better_than_by_means(tmp_path: Path) -> None:
    table = table_of(tmp_path)

    report = report_of(table, compare_rows(table, folds=4))

    errors = errors_by_name(report)
    assert report.test_rows == len(table) == 100
    assert errors[MODEL] < 0.02
    assert errors[MODEL] < errors["mean of all"] < errors["no interference"]
    assert {f"{MODEL}, gamma slowed", f"{INTERFERENCE}, gamma slowed"} <= set(errors)
    assert report.scores[0].name == MODEL
    assert report.scores[0].flagged == 0.0


def test_rows_are_those_of_the_interference_forecast(tmp_path: Path) -> None:
    table = table_of(tmp_path)

    report = report_of(table, compare_rows(table, folds=None))

    by_name = {score.name: score for score in report.scores}
    assert by_name[MODEL].rows == by_name[INTERFERENCE].rows == report.test_rows > len(table)
    assert by_name[MODEL].flagged == by_name[INTERFERENCE].flagged == 1.0


def test_forecast_sees_nothing_of_a_model_that_is_left_out(tmp_path: Path) -> None:
    odd = [row if "Gamma" not in row else row.replace(row.split(",")[6], "0.2000") for row in deepshare_rows()]
    plain, changed = table_of(tmp_path), table_of(tmp_path, odd)

    forecasts = [compare_rows(table, folds=None) for table in (plain, changed)]

    models = np.array(plain.pairs.items.model, dtype=object)
    first, second = (
        np.concatenate([part.forecasts[MODEL].median, part.forecasts["performance model, flat prior"].median])
        for part in forecasts
    )
    # The first rows to be judged are those of Alpha, in whose fit Gamma stands; then come those of the others.
    order = sorted(set(models))
    rows = forecasts[0].rows
    part_of_row = np.repeat(
        np.arange(len(order)),
        [
            int(np.count_nonzero((models[plain.pairs.mine] == name) | (models[plain.pairs.other] == name)))
            for name in order
        ],
    )
    without = np.tile(part_of_row == order.index("gamma"), 2)
    assert len(rows) == len(part_of_row)
    assert first[without] == pytest.approx(second[without])
    assert np.abs(first[~without] - second[~without]).max() > 0.01


def test_each_row_is_one_sample_with_one_neighbour(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    models = models_in(table)

    samples = samples_of(table, models)

    assert len(samples) == len(table)
    assert (samples.others.sum(axis=1) == 1.0).all()
    assert np.exp(samples.log_speed) == pytest.approx(table.speed)
    assert models[samples.model[0]] == table.pairs.items.model[table.pairs.mine[0]]


def test_rows_that_were_not_measured_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = deepshare_rows()
    path = write(tmp_path, DEEPSHARE, [*rows, *(f"{row[:-1]}1" for row in rows[:7])])

    table, _ = read_pairs([path])
    by_pairs = run("--pairs", path, "--folds", "3")
    new_site = run("--pairs", path, "--new-site", "--repetitions", "2")

    assert len(table) == len(rows) == by_pairs["test_rows"] == 100
    assert by_pairs["left_out"] == {"extrapolated, not measured": 7}
    assert new_site["test_rows"] == 20
    assert new_site["left_out"] == {"extrapolated, not measured": 7, "adapted to, others in each draw": 80}


def test_more_rows_of_a_new_site_make_the_model_better_than_its_prior(tmp_path: Path) -> None:
    table = table_of(tmp_path)

    report = new_site_report(table, repetitions=2, seed=0, sizes=(5, 40))

    errors = errors_by_name(report)
    assert report.test_rows == 60
    assert errors["40 rows: performance model"] < errors["5 rows: performance model"]
    assert errors["5 rows: performance model"] < errors["performance model, prior alone"] < errors["no interference"]
    assert "40 rows: interference forecast" in errors
    assert "5 rows: interference forecast" not in errors
    assert any(note.startswith("40 rows, error of the performance model less") for note in report.notes)


def test_prior_of_a_new_site_is_the_same_for_all_its_models() -> None:
    prior = elsewhere_prior(("dlrm", "fsdp"))

    assert np.ptp(prior.added) == pytest.approx(0.0)
    assert prior.added[0, 0] > 0.05


def test_too_few_rows_for_a_new_site_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave none to judge"):
        new_site_report(table_of(tmp_path), repetitions=2, seed=0, sizes=(100,))


def test_forecasts_are_written_by_row(tmp_path: Path) -> None:
    path = write(tmp_path, DEEPSHARE, deepshare_rows())
    written = tmp_path / "rows.csv"

    printed = run("--pairs", path, "--folds", "3", "--by-row", written)

    with written.open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) == printed["test_rows"] == 100
    names = {key.lower().replace("-", ""): key for key in NEED_BY_MODEL}
    for line in lines:
        true = speed_beside(names[line["model"]], names[line["corunner_model"]])
        assert float(line["throughput_ratio"]) == pytest.approx(true, abs=0.001)
    errors = [abs(float(line[MODEL]) - float(line["throughput_ratio"])) for line in lines]
    assert np.mean(errors) == pytest.approx(printed["scores"][0]["mean_error"], abs=0.001)  # type: ignore[index]


def test_model_adapts_to_its_speeds_on_gpu_types_at_other_batches(tmp_path: Path) -> None:
    path = write(tmp_path, ISOLATED, type_rows({"Alpha": 0.5, "Beta": 0.4, "Gamma": 0.1}))

    report = type_report(path, seed=0)

    errors = errors_by_name(report)
    assert errors["adapted to 2 other batch sizes"] < errors["adapted to 1 other batch size"] < errors[SAME]
    assert errors["adapted to 1 other batch size, gamma"] < errors[f"{MEANS}, gamma"]


def test_batches_that_did_not_run_on_every_type_are_left_out(tmp_path: Path) -> None:
    rows = [*type_rows({"Alpha": 0.5, "Beta": 0.4}), "k80,1,Beta,128,1,0.0", "v100,1,Beta,128,1,3.0", "v100,1,A,1,2,3"]

    report = type_report(write(tmp_path, ISOLATED, rows), seed=0)

    assert report.test_rows == 12
    assert report.left_out == {"of batch sizes that did not run on every type": 2, "not of one GPU": 1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param([], "either --pairs", id="no table"),
        pytest.param(["--pairs", "TABLE"], "give one of", id="no way to split"),
        pytest.param(["--pairs", "TABLE", "--folds", "3", "--new-site"], "give one of", id="two ways"),
        pytest.param(["--pairs", "TABLE", "--folds", "1"], "at least 2", id="one fold"),
        pytest.param(["--types", "TABLE", "--folds", "3"], "is for --pairs", id="folds of types"),
        pytest.param(["--types", "TABLE"], "column gpu_type is missing", id="no table of types"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: list[str], words: str) -> None:
    path = str(write(tmp_path, DEEPSHARE, deepshare_rows()))

    with pytest.raises(ConfigError, match=words):
        run(*[path if option == "TABLE" else option for option in options])
