"""The judgement of the throughput predictor: what it may see, and what it says."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from advisor.errors import ConfigError
from advisor.fit.throughput_data import files_of
from tests.predict.throughput_cluster import make_measured, steps, theta_of, work, write_cluster
from tools.data.step_times import read_measured
from tools.evaluate.__main__ import app
from tools.evaluate.score_report import Report, Score
from tools.evaluate.throughput_errors import (
    CURVE,
    LINEAR,
    NEAREST,
    ROOT,
    Known,
    baselines,
    evaluate,
    fold_of,
    matching,
    rows_known,
)

# Each fits or judges models.
pytestmark = pytest.mark.slow

COLUMNS = {
    "nodes": np.array([1.0, 1.0, 2.0]),
    "gpus": np.array([1.0, 4.0, 8.0]),
    "local_bsz": np.array([8.0, 8.0, 16.0]),
}


def named(report: Report, name: str) -> Score:
    return next(each for each in report.scores if each.name == name)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["throughput", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("nodes==1", [True, True, False]),
        ("GPUS <= 4 and nodes != 2", [True, True, False]),
        ("gpus > 3.5", [False, True, True]),
    ],
)
def test_expression_picks_rows(text: str, rows: list[bool]) -> None:
    assert matching(text, COLUMNS).tolist() == rows


@pytest.mark.parametrize(
    "text",
    ["", "nodes", "nodes==", "foo==1", "nodes==1 nodes==2", "nodes==1 or gpus==1", "__import__('os')", "and"],
)
def test_other_expressions_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        matching(text, COLUMNS)

    assert "--profile" in str(caught.value) and "\n" not in str(caught.value)


def test_baselines_scale_from_the_nearest_known_point() -> None:
    known = make_measured(
        gpus=np.array([1.0, 4.0]), most=np.array([1.0, 4.0]), least=np.array([1.0, 4.0]), step_s=np.array([1.0, 1.2])
    )
    judged = make_measured(gpus=np.array([8.0]), most=np.array([8.0]), least=np.array([8.0]), batch=np.array([1.0]))

    found = baselines(judged, known, known.take(np.zeros(2, dtype=np.bool_)))

    assert found[LINEAR] == pytest.approx([1.2]) and found[NEAREST] == pytest.approx([1.2])
    assert found[ROOT] == pytest.approx([1.2 * 2.0**0.1])
    assert found[CURVE] == pytest.approx([1.2])


def test_points_of_the_job_come_before_the_training_and_that_before_its_request() -> None:
    judged, points = make_measured(gpus=np.array([4.0, 1.0])), make_measured(step_s=np.array([2.0]))
    train = make_measured(step_s=np.array([3.0, 4.0]))
    nothing = points.take(np.zeros(1, dtype=np.bool_))

    assert rows_known(judged, points, train).step_s.tolist() == [2.0]
    assert rows_known(judged, nothing, train).step_s.tolist() == [3.0, 4.0]
    assert rows_known(judged, nothing, nothing).gpus.tolist() == [1.0]


def test_a_shape_is_in_one_fold_only() -> None:
    shapes = ["a", "b", "c", "a", "b", "c", "d"]

    found = fold_of(shapes, 3, np.random.default_rng(0))

    assert found[:3].tolist() == found[3:6].tolist()
    assert set(found.tolist()) == {0, 1, 2}


def test_folds_judge_every_row_once_and_beat_the_baselines(tmp_path: Path) -> None:
    measured = read_measured(write_cluster(tmp_path / "net_t4"), "pollux")

    report = evaluate(measured, measured, Known(), folds=5)

    ours = named(report, "throughput")
    assert ours.rows == report.test_rows == len(measured)
    assert ours.mean_error < min(named(report, name).mean_error for name in (LINEAR, ROOT, CURVE, NEAREST))
    assert ours.coverage is not None and ours.coverage > 0.6
    assert {each.name for each in report.scores} >= {"throughput: alpha", "throughput: delta"}


def test_model_to_be_judged_is_left_out_of_the_training(tmp_path: Path) -> None:
    files = write_cluster(tmp_path / "net_t4", scatter=0.0)
    measured = read_measured(files, "pollux")
    odd = measured.model == "delta"
    # Nobody could foresee this from the other models: whoever did has seen it.
    measured.step_s[odd & (measured.nodes > 1)] *= 7.0

    report = evaluate(measured, measured.take(odd), Known(profile="nodes==1"))

    assert named(report, "throughput").mean_error > 50.0
    assert any("delta" in note and "left out" in note for note in report.notes)
    assert report.left_out == {"known by --profile": int(np.count_nonzero(odd & (measured.nodes == 1)))}
    assert report.test_rows + sum(report.left_out.values()) == np.count_nonzero(odd)


def test_copy_of_a_training_file_elsewhere_is_left_out_as_well(tmp_path: Path) -> None:
    write_cluster(tmp_path / "net_t4")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "delta.csv").write_bytes((tmp_path / "net_t4" / "delta-placements.csv").read_bytes())
    train, test = (read_measured(files_of([tmp_path / name]), "pollux") for name in ("net_t4", "copy"))

    report = evaluate(train, test, Known(profile="gpus==1"))

    assert any("delta" in note for note in report.notes)


def test_each_thing_that_is_known_of_a_new_cluster_brings_forecasts_nearer(tmp_path: Path) -> None:
    write_cluster(tmp_path / "net_t4")
    write_cluster(tmp_path / "ib_a100", network=-2.0)
    measured = read_measured(files_of([tmp_path / "net_t4", tmp_path / "ib_a100"]), "auto")
    delta = measured.take((measured.model == "delta") & (measured.cluster == "net_t4"))
    network = measured.take((measured.cluster == "net_t4") & np.isin(measured.model, ["gamma", "delta"]))
    elsewhere = Known(profile="nodes==1", left_out="cluster", unnamed=True)
    point = replace(elsewhere, point="gpus==4 and nodes==2")

    model = evaluate(measured, delta, Known(profile="nodes==1"))
    cluster = evaluate(measured, delta, elsewhere)
    of_another = evaluate(measured, network, replace(point, of_another=True))
    own = evaluate(measured, delta, point)

    off = [named(each, "throughput").mean_error for each in (cluster, model, own)]
    assert off[0] > 2.0 * off[1] and off[0] > 2.0 * off[2]
    assert named(of_another, "throughput: delta").mean_error < 0.7 * off[0]
    assert named(cluster, "throughput").flagged == named(of_another, "throughput").flagged == 1.0
    flagged = named(own, "throughput").flagged
    assert flagged is not None and flagged < 1.0


@pytest.mark.parametrize(
    ("known", "folds", "said"),
    [
        (Known(), 1, "2 or more"),
        (Known(profile="nodes==1"), 3, "excludes --profile"),
        (Known(profile="gpus>0"), None, "no row is left"),
        (Known(of_another=True), None, "needs --point"),
        (Known(), None, "nothing is left"),
    ],
)
def test_senseless_questions_are_refused(known: Known, folds: int | None, said: str) -> None:
    rows = make_measured()

    with pytest.raises(ConfigError, match=said):
        evaluate(rows.take(np.zeros(1, dtype=np.bool_)), rows, known, folds=folds)


def test_elasticflow_counts_errors_in_iterations_per_second(tmp_path: Path) -> None:
    (tmp_path / "ib_a100").mkdir()
    sizes = (1, 2, 4, 8, 16, 32)
    for number, model in enumerate("mnop"):
        lines = ["global_batch_size," + ",".join(map(str, sizes))]
        for batch in (64, 128):
            placements = [
                work(*(["8" * (size // 8)] if size > 8 else [str(size)]), batch=batch / size) for size in sizes
            ]
            rates = [1.0 / float(steps(theta_of(number, -2.0), each, reference=8.0)[0]) for each in placements]
            lines.append(f"{batch}," + ",".join(repr(rate) for rate in rates))
        if model == "p":
            lines[0], lines[1], lines[2] = f"{lines[0]},64", f"{lines[1]},", f"{lines[2]},0.0"
        (tmp_path / "ib_a100" / f"{model}.csv").write_text("\n".join(lines))

    output = run(
        "--format", "elasticflow", "--train", str(tmp_path / "ib_a100"), "--test",
        *[str(tmp_path / "ib_a100" / f"{model}.csv") for model in "mnop"], "--profile", "gpus<=8", "--json",
    )  # fmt: skip

    report = json.loads(output)
    assert "iterations" in report["what"] and report["test_rows"] == 16
    assert report["left_out"] == {"known by --profile": 32, "could not run": 2}
    assert report["scores"][0]["mean_error"] < 15.0


def test_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there are auto, pollux, elasticflow, rubick"):
        run("--format", "excel", "--test", str(tmp_path))


@pytest.mark.needs("measurements")
def test_measured_models_reach_their_figures() -> None:
    folder = Path(os.environ["SADVISE_DATA"]) / "throughput"
    measured = read_measured(files_of([folder / "pollux_aws_t4"]), "pollux")

    known = evaluate(measured, measured, Known(), folds=5)
    placements = named(known, "throughput")
    models = named(evaluate(measured, measured, Known(profile="nodes==1")), "throughput")

    # The law alone, which trees do not correct, is little better at new placements of models that it knows.
    assert placements.mean_error < min(named(known, name).mean_error for name in (LINEAR, ROOT, CURVE, NEAREST))
    assert models.mean_error < 15.0 and models.further["tau"] > 0.8
