"""The fit of interference: what it finds, that it is the same each time, and that it can be published."""

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import ConfigError
from advisor.fit.fitted import Fitted
from advisor.fit.interference_files import (
    GANG_PAIRS,
    GPU_PAIRS,
    Form,
    form_of,
    measured,
    read_files,
    read_sides,
    read_table,
)
from advisor.fit.interference_fit import fit_interference, fit_measured
from advisor.fit.interference_kernel import Chosen, Weights, covariance, left_out, pairs_left_out, search
from advisor.fit.publish import check_parity, publish
from advisor.predict.interference_items import PROFILE, Shape, Shared
from advisor.predict.interference_section import COLUMNS, OUTPUTS
from tests.fit.interference_tables import (
    DEEPSHARE,
    DEEPSHARE_SINGLES,
    GAVEL,
    LUCID_SINGLES,
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


def test_both_sides_of_a_pair_are_read_relative_to_alone(tmp_path: Path) -> None:
    path = write(tmp_path, GAVEL, ["v100,A,16,B,32,10,4,5,1"])

    sides = read_sides(path, GPU_PAIRS)

    assert [(side.mine.model, side.other.model, side.speed) for side in sides] == [("A", "B", 0.5), ("B", "A", 0.25)]


def test_pairs_that_did_not_run_and_speeds_alone_of_zero_are_no_measurement(tmp_path: Path) -> None:
    path = write(tmp_path, GAVEL, ["v100,A,16,B,32,10,4,0,0", "v100,A,16,B,32,0,4,1,1", "v100,A,,B,32,1,1,1,1"])

    assert len(read_sides(path, GPU_PAIRS)) == 2


def test_extrapolated_rows_are_no_measurement(tmp_path: Path) -> None:
    path = write(tmp_path, DEEPSHARE, ["A,2,2,B,4,2,0.9,0", "A,2,2,B,8,8,0.5,1"])

    assert [side.speed for side in read_sides(path, GANG_PAIRS)] == [0.9]


def test_files_of_speeds_alone_are_found_by_their_columns(tmp_path: Path) -> None:
    pairs = write(tmp_path, DEEPSHARE, ["A,2,2,B,4,2,0.9,0"])
    singles = write(tmp_path, DEEPSHARE_SINGLES, ["a,2,2,150,0", "B,4,4,70,0", "B,4,2,80,1"], name="alone.csv")

    sides, sources = read_files([pairs, singles])

    [side] = sides[Shared.NODE]
    assert side.mine.steps_per_s == 150.0
    assert math.isnan(side.other.steps_per_s)
    assert [(source.name, source.rows) for source in sources] == [("alone.csv", 3), ("pairs.csv", 1)]


@pytest.mark.parametrize(("form", "columns"), [(GPU_PAIRS, GAVEL), (GANG_PAIRS, DEEPSHARE)])
def test_speeds_alone_of_another_form_are_refused(tmp_path: Path, form: Form, columns: tuple[str, ...]) -> None:
    pairs = write(tmp_path, columns, [",".join("1" for _ in columns)])
    singles = write(tmp_path, LUCID_SINGLES, ["A,C,64,0,12.5,55,20,1500,x"], name="alone.csv")

    with pytest.raises(ConfigError, match="jobs alone"):
        read_sides(pairs, form, singles)


def test_sides_and_repeats_of_a_pair_have_one_number(tmp_path: Path) -> None:
    path = write(tmp_path, GAVEL, ["v100,A,16,B,32,10,4,5,1", "v100,B,32,A,16,4,10,1,6", "k80,A,16,B,32,10,4,5,1"])

    found = measured(read_sides(path, GPU_PAIRS), Shared.GPU)

    assert len(set(found.pair[:4].tolist())) == 1
    assert found.pair[4] != found.pair[0]


def test_saturation_is_the_slope_of_the_step_time_over_the_batch(tmp_path: Path) -> None:
    path = write(tmp_path, GAVEL, ["v100,A,16,B,32,10,4,5,1", "v100,A,32,B,64,5,4,5,1"])

    items = measured(read_sides(path, GPU_PAIRS), Shared.GPU).pairs.items

    slopes = {model: items.profile[row, PROFILE.index("saturation")] for row, model in enumerate(items.model)}
    assert slopes == pytest.approx({"a": 1.0, "b": 0.0})


def test_packed_files_extra_columns_and_any_order_of_columns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv.gz"
    header, row = "note,throughput_ratio," + ",".join(DEEPSHARE[:6]), "x,0.9,A,2,2,B,4,2"
    path.write_bytes(gzip.compress(f"{header}\n{row}\n".encode()))

    assert form_of(path, read_table(path).header) is GANG_PAIRS
    assert [side.speed for side in read_sides(path, GANG_PAIRS)] == [0.9]


@pytest.mark.parametrize(("form", "columns"), [(GPU_PAIRS, GAVEL), (GANG_PAIRS, DEEPSHARE)])
def test_form_is_told_by_the_header(tmp_path: Path, form: Form, columns: tuple[str, ...]) -> None:
    assert form_of(tmp_path, columns) is form


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        pytest.param(["A,2,2,B,4,2,fast,0"], "line 2: throughput_ratio is 'fast'", id="text"),
        pytest.param(["A,2,2,B,4,2,-0.5,0"], "line 2: throughput_ratio is '-0.5'", id="negative"),
        pytest.param(["A,2,2,B,4,2,inf,0"], "line 2: throughput_ratio is 'inf'", id="infinite"),
        pytest.param(["A,2,2,B,4,2,nan,0"], "line 2: throughput_ratio is 'nan'", id="not a number"),
        pytest.param([",2,2,B,4,2,0.5,0"], "line 2: model is empty", id="no name"),
        pytest.param(["A,2"], "line 2: ", id="short"),
        pytest.param([], "holds no rows", id="empty"),
    ],
)
def test_wrong_row_is_refused_with_its_line(tmp_path: Path, rows: list[str], said: str) -> None:
    path = write(tmp_path, DEEPSHARE, rows)

    with pytest.raises(ConfigError, match=said):
        read_sides(path, GANG_PAIRS)


def test_file_that_is_not_there_or_of_another_form_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, DEEPSHARE, ["A,2,2,B,4,2,0.9,0"])
    damaged = tmp_path / "damaged.csv.gz"
    damaged.write_bytes(gzip.compress(b"model,gpus\n" * 1000)[:30])
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(gzip.compress(b"model,gpus\n")[:10] + b"\xff" * 30)

    with pytest.raises(ConfigError, match="cannot be read"):
        read_sides(tmp_path / "missing.csv", GPU_PAIRS)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_table(damaged)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_table(broken)
    with pytest.raises(ConfigError, match="column gpu_type is missing"):
        read_sides(path, GPU_PAIRS)
    with pytest.raises(ConfigError, match="none of the known forms"):
        form_of(path, ["a", "b"])
