"""The gate that a fitted model passes before it can be served."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from advisor.domain.probation import NO_ORDER, Coverage, OrderProof, Proof
from advisor.errors import ModelError
from advisor.fit.fitted import predictions, to_onnx
from advisor.fit.publish import publish
from advisor.fit.run_time_choice import OURS, proof
from advisor.predict.manifest import read_manifest
from advisor.predict.onnx_model import OnnxModel
from tests.predict.shelf import TODAY, Wrong, make_fitted


def test_model_that_answers_otherwise_than_its_origin_is_not_published(tmp_path: Path) -> None:
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import calculate_linear_regressor_output_shapes
    from skl2onnx.operator_converters.linear_regressor import convert_sklearn_linear_regressor

    update_registered_converter(
        Wrong, "TestsWrong", calculate_linear_regressor_output_shapes, convert_sklearn_linear_regressor
    )

    with pytest.raises(ModelError, match="not published"):
        publish(make_fitted(regressor=Wrong()), tmp_path, "site-1", today=TODAY)

    assert list(tmp_path.iterdir()) == []


def test_too_few_rows_to_compare_on_are_refused(tmp_path: Path) -> None:
    few = replace(make_fitted(), probe=make_fitted().probe[:5])

    with pytest.raises(ModelError, match="5 rows are too few"):
        publish(few, tmp_path, "site-1", today=TODAY)


def test_version_is_never_overwritten(tmp_path: Path) -> None:
    publish(make_fitted(), tmp_path, "site-1", today=TODAY)

    with pytest.raises(ModelError, match="is there already"):
        publish(make_fitted(), tmp_path, "site-1", today=TODAY)


@pytest.mark.parametrize(("private", "parameters"), [(False, 0o644), (True, 0o640)])
def test_published_model_is_for_every_user_whatever_the_umask(private: bool, parameters: int, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        publish(make_fitted(), tmp_path / "state" / "models", "site-1", today=TODAY, private=private)
    finally:
        os.umask(before)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").rglob("*")}
    assert modes.pop("parameters.json") == parameters
    assert {name: mode for name, mode in modes.items() if mode != (0o644 if "." in name else 0o755)} == {}
    assert {"model.onnx", "card.md", "manifest.toml", "models", "site-1"} <= modes.keys()


def test_manifest_tells_what_it_was_made_with(tmp_path: Path) -> None:
    entry = publish(make_fitted(), tmp_path, "site-1", today=TODAY)

    assert read_manifest(tmp_path).model == (entry,)
    assert entry.parity.rows == 50
    assert entry.parity.max_error <= entry.parity.tolerance
    assert {"sadvise", "python", "numpy", "scikit-learn", "skl2onnx", "onnx", "onnxruntime"} == set(entry.made_with)


BETTER = OrderProof(jobs=200, users=12, ordered_ratio=0.95, limit_ratio=0.9, gain_ratio=0.04, error_ratio=0.01)


def test_proof_by_jobs_of_the_site_goes_into_the_manifest_and_the_card(tmp_path: Path) -> None:
    tested = replace(make_fitted(), tested=Proof(coverage=Coverage(jobs=200, inside=165), order=BETTER))

    entry = publish(tested, tmp_path, "site-1", today=TODAY)

    (read,) = read_manifest(tmp_path).model
    assert read == entry and read.tested is not None and read.tested.proof == tested.tested
    card = (tmp_path / "run_time" / "site-1" / "card.md").read_text()
    assert "165 of 200 ran" in card and "It orders 95.0 % of the GPU-time in question right, time limits 90.0 %" in card


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        (
            {"held_out_rows": 200.0, "held_out_coverage": 0.825},
            Proof(coverage=Coverage(jobs=200, inside=165), order=NO_ORDER),
        ),
        (
            {
                "held_out_rows": 200.0,
                "held_out_coverage": 0.825,
                "held_out_limit_ordered": 0.9,
                "held_out_order_users": 12.0,
                "held_out_ordered": 0.95,
                "held_out_order_gain": 0.04,
                "held_out_order_gain_error": 0.01,
            },
            Proof(coverage=Coverage(jobs=200, inside=165), order=BETTER),
        ),
        ({"rows": 40.0}, None),
    ],
    ids=["none waited together", "both", "nothing held out"],
)
def test_proof_is_that_of_the_rows_held_out(metrics: dict[str, float], expected: Proof | None) -> None:
    assert proof(metrics, OURS) == expected


def test_folder_that_cannot_be_written_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ModelError, match="cannot be"):
        publish(make_fitted(), tmp_path / "file", "site-1", today=TODAY)


def test_regressors_side_by_side_answer_as_they_do_alone() -> None:
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(400, 3)).astype(np.float32)
    rows[::7, 1] = np.nan
    wanted = (np.nan_to_num(rows[:, 1]) + rows[:, 0] ** 2).astype(np.float32)
    trees = [
        HistGradientBoostingRegressor(loss="quantile", quantile=each, max_iter=10).fit(rows, wanted)
        for each in (0.1, 0.5, 0.9)
    ]

    found = OnnxModel(to_onnx(trees, 3), name="trees", columns=3, outputs=3).run(rows)

    assert np.abs(found - predictions(trees, rows)).max() < 1e-5
