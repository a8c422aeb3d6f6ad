"""The fit of interference: what it finds, that it is the same each time, and that it can be published."""

from pathlib import Path

import numpy as np
import pytest

from advisor.errors import ConfigError
from advisor.fit.fitted import Fitted
from advisor.fit.interference_files import GANG_PAIRS, GPU_PAIRS, measured, read_sides
from advisor.fit.interference_fit import fit_interference, fit_measured
from advisor.fit.interference_kernel import Chosen, Weights, covariance, left_out, pairs_left_out, search
from advisor.fit.publish import check_parity, publish
from advisor.predict.interference_items import Shape, Shared
from advisor.predict.interference_section import COLUMNS, OUTPUTS
from tests.fit.interference_tables import (
    DEEPSHARE,
    DEEPSHARE_SINGLES,
    GAVEL,
    NEED_BY_MODEL,
    deepshare_rows,
    gavel_rows,
    write,
)


@pytest.fixture(scope="module")
def of_nodes(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """A fit to pairs on shared nodes."""
    return fit_interference([write(tmp_path_factory.mktemp("pairs"), DEEPSHARE, deepshare_rows())], seed=3)


@pytest.mark.slow
def test_one_fit_takes_both_ways_of_sharing_and_is_published(tmp_path: Path) -> None:
    gpu = write(tmp_path, GAVEL, gavel_rows())
    node = write(tmp_path, DEEPSHARE, deepshare_rows(), name="network.csv")

    fitted = fit_interference([gpu, node], seed=3)
    entry = publish(fitted, tmp_path / "models", "site-1", today="2026-11-21")

    assert (fitted.kind, fitted.outputs) == ("interference", OUTPUTS)
    assert fitted.columns == COLUMNS[: len(fitted.columns)]
    assert [source.rows for source in fitted.sources] == [220, 100]
    assert len(fitted.metrics) == 3 + 3 + 4
    assert fitted.metrics["shared GPU: mean error of relative speed, pairs left out"] < 0.02
    assert entry.parity.max_error <= entry.parity.tolerance


def test_fit_to_one_way_of_sharing_can_be_published(of_nodes: Fitted, tmp_path: Path) -> None:
    entry = publish(of_nodes, tmp_path / "models", "site-1", today="2026-11-21")

    assert entry.parity.rows >= 20


def test_equal_inputs_give_equal_models(of_nodes: Fitted, tmp_path: Path) -> None:
    again = fit_interference([write(tmp_path, DEEPSHARE, deepshare_rows())], seed=3)

    assert again.parameters == of_nodes.parameters
    assert all(
        np.array_equal(one.coef_, two.coef_) for one, two in zip(again.regressors, of_nodes.regressors, strict=True)
    )


def test_order_of_rows_moves_forecasts_by_rounding_only(of_nodes: Fitted, tmp_path: Path) -> None:
    turned = write(tmp_path, DEEPSHARE, deepshare_rows()[::-1], name="turned.csv")

    fitted = fit_interference([turned], seed=3)

    assert fitted.metrics == pytest.approx(of_nodes.metrics, rel=1e-6)


def test_too_few_rows_are_refused(tmp_path: Path) -> None:
    few = write(tmp_path, DEEPSHARE, deepshare_rows()[:6])

    with pytest.raises(ConfigError, match="6 measured rows are too few"):
        fit_interference([few], seed=3)
    with pytest.raises(ConfigError, match="no measured pairs"):
        fit_measured(None, None, seed=3)


def test_rows_left_out_in_closed_form_are_as_fitted_without_them(tmp_path: Path) -> None:
    found = measured(read_sides(write(tmp_path, DEEPSHARE, deepshare_rows()), GANG_PAIRS), Shared.NODE)
    chosen = Chosen(mine=Shape(), other=Shape(), weights=Weights())

    said = left_out(found.pairs, found.speed, found.pair, chosen)

    gram, mean = covariance(found.pairs, chosen), found.speed.mean()
    inside = found.pair != found.pair[0]
    kept = gram[np.ix_(inside, inside)] + chosen.weights.noise * np.eye(int(np.count_nonzero(inside)))
    expected = mean + gram[np.ix_(~inside, inside)] @ np.linalg.solve(kept, found.speed[inside] - mean)
    assert said.by_pair[~inside] == pytest.approx(expected, abs=1e-9)
    # Of a regression that is cut to few columns the errors are its own, not those of the whole.
    values, vectors = np.linalg.eigh(gram)
    columns = vectors[:, -9:] * np.sqrt(values[-9:])
    cut = columns @ columns.T
    kept = cut[np.ix_(inside, inside)] + chosen.weights.noise * np.eye(int(np.count_nonzero(inside)))
    expected = mean + cut[np.ix_(~inside, inside)] @ np.linalg.solve(kept, found.speed[inside] - mean)
    served = pairs_left_out(columns, found.speed, found.pair, chosen.weights.noise, np.ones(len(found)))
    assert served[~inside] == pytest.approx(expected, abs=1e-9)


def test_gpu_type_whose_speeds_do_not_add_up_is_left_out_and_named(tmp_path: Path) -> None:
    rows = gavel_rows(gpu_types=("k80",))
    # A wrong speed alone of one model makes its pairs add up to far too little.
    doubtful = [_slowed(row.replace("k80", "v100")) if "Gamma" in row else row.replace("k80", "v100") for row in rows]

    both = fit_interference([write(tmp_path, GAVEL, rows + doubtful)], seed=3)
    alone = fit_interference([write(tmp_path, GAVEL, doubtful, name="alone.csv")], seed=3)

    assert '"v100"' not in both.parameters and '"k80"' in both.parameters
    assert "on v100" in both.text and "on k80" not in both.text
    assert '"v100"' in alone.parameters and "on v100" in alone.text
    sums = [both.metrics[f"shared GPU: sum of the two speeds of a pair on {name}, mean"] for name in ("v100", "k80")]
    assert sums[0] < sums[1]


def _slowed(row: str) -> str:
    *cells, beside, other_beside = row.split(",")
    return ",".join([*cells, str(float(beside) / 2), str(float(other_beside) / 2)])


@pytest.mark.slow
def test_model_that_was_never_measured_is_forecast_by_its_speed_alone(tmp_path: Path) -> None:
    pairs = write(tmp_path, DEEPSHARE, deepshare_rows())
    speeds = {model: 100.0 * 2.0 ** (3.0 * need) for model, need in NEED_BY_MODEL.items()}
    singles = write(
        tmp_path,
        DEEPSHARE_SINGLES,
        [f"{model},{gpus},2,{gpus * speed},0" for model, speed in speeds.items() for gpus in (2, 4)],
        name="alone.csv",
    )

    with_speeds, without = (fit_interference(files, seed=3) for files in ([pairs, singles], [pairs]))

    error = "shared nodes: mean error of relative speed, models left out"
    assert with_speeds.metrics[error] < 0.5 * without.metrics[error]
    assert '"step_time"' in with_speeds.parameters
    assert check_parity(with_speeds, _graph(with_speeds)).rows > 20


def test_search_is_no_worse_than_where_it_starts_and_looks_at_part_of_large_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.fit.interference_kernel.SEARCHED_ROWS", 60)
    monkeypatch.setattr("advisor.fit.interference_fit.JUDGED_ROWS", 80)
    found = measured(read_sides(write(tmp_path, GAVEL, gavel_rows()), GPU_PAIRS), Shared.GPU)
    start = Chosen(mine=Shape(), other=Shape(), weights=Weights())

    chosen = search(found.pairs, found.speed, found.pair, np.random.default_rng(1))
    fitted = fit_measured(found, None, seed=1)

    errors = [
        np.abs(left_out(found.pairs, found.speed, found.pair, each).by_pair - found.speed).mean()
        for each in (chosen, start)
    ]
    assert errors[0] <= errors[1] + 0.002
    assert check_parity(fitted, _graph(fitted)).rows > 20


def _graph(fitted: "object") -> bytes:
    from advisor.fit.fitted import to_onnx

    return to_onnx(fitted.regressors, len(fitted.columns))  # type: ignore[attr-defined]
