"""Forecasts of start times: columns without a scale, what is known, what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import ModelError
from advisor.features.backlog import BacklogTable, backlog_table
from advisor.fit.fitted import bundled
from advisor.fit.start_time_fit import fit_polls
from advisor.predict.onnx_model import Bundle
from advisor.predict.start_time import COLUMNS, StartTimeForecaster, model_rows
from tests.builders import make_job, make_snapshot
from tests.fit.start_time_journal import poll_rows, write
from tools.data.graham_polls import read_polls


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> BacklogTable:
    return read_polls([write(tmp_path_factory.mktemp("table") / "polls.csv", poll_rows(days=8))])[0].table


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    polls, _ = read_polls([write(tmp_path_factory.mktemp("polls") / "polls.csv", poll_rows())])
    return bundled(fit_polls(polls, seen_until=polls.seen_until, seed=0))


def changed(table: BacklogTable, column: str, value: float) -> BacklogTable:
    """Return the table with one value in all rows of a column."""
    return replace(table, **{column: np.full(len(table), value)})  # type: ignore[arg-type]


def test_more_ahead_means_a_later_start(bundle: Bundle, table: BacklogTable) -> None:
    order = np.argsort(table.ahead.gpu_s)

    found = StartTimeForecaster.from_bundle(bundle).forecast(table.take(order[[5, -5]]))

    assert found.median[0] < found.median[1] / 10
    assert (found.low < found.median).all()
    assert (found.median < found.high).all()


def test_cluster_ten_times_as_large_with_ten_times_the_queue_looks_the_same(table: BacklogTable) -> None:
    loads = ("ahead", "ahead_in_partition", "ahead_in_account", "running", "running_in_account")
    larger = replace(
        table,
        **{
            name: replace(getattr(table, name), gpus=load.gpus * 10, gpu_s=load.gpu_s * 10)
            for name in loads
            if (load := getattr(table, name))
        },
    )

    assert np.allclose(model_rows(larger), model_rows(table), atol=1e-6)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        pytest.param("gpus", 512.0, id="size never seen"),
        pytest.param("gpus", np.nan, id="size unknown"),
        pytest.param("limit_s", np.nan, id="no limit"),
        pytest.param("since_submit_s", 1e8, id="waited for years"),
    ],
)
def test_row_outside_of_what_was_fitted_on_is_not_known(
    bundle: Bundle, table: BacklogTable, column: str, value: float
) -> None:
    forecaster = StartTimeForecaster.from_bundle(bundle)

    found = forecaster.forecast(changed(table, column, value))

    assert forecaster.forecast(table).known.mean() > 0.9
    assert not found.known.any()
    assert np.isfinite(found.high).all()


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1e7))
def test_no_job_starts_before_its_begin_time(bundle: Bundle, table: BacklogTable, seed: int, most_s: float) -> None:
    begins_in_s = np.random.default_rng(seed).uniform(0.0, most_s, len(table))

    found = StartTimeForecaster.from_bundle(bundle).forecast(replace(table, begins_in_s=begins_in_s))

    assert (found.low >= begins_in_s).all() and (found.median >= found.low).all() and (found.high >= found.median).all()


def test_row_where_nothing_runs_is_not_known(bundle: Bundle) -> None:
    table = backlog_table(make_snapshot([make_job(1)]))

    found = StartTimeForecaster.from_bundle(bundle).forecast(table)

    assert found.known.tolist() == [False]


def test_empty_queue_has_no_forecasts(bundle: Bundle) -> None:
    assert len(StartTimeForecaster.from_bundle(bundle).forecast(backlog_table(make_snapshot()))) == 0


def test_gpu_seconds_of_another_making_are_refused(bundle: Bundle, table: BacklogTable) -> None:
    forecaster = StartTimeForecaster.from_bundle(bundle)

    with pytest.raises(ModelError, match="fitted on GPU-hours by time limits"):
        forecaster.forecast(replace(table, by_limits=False))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        pytest.param("{", "parameters: : Invalid JSON", id="no JSON"),
        pytest.param("{}", "parameters: low: Field required", id="missing"),
    ],
)
def test_damaged_parameters_are_refused(bundle: Bundle, parameters: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        StartTimeForecaster.from_bundle(replace(bundle, parameters=parameters))


def test_low_end_above_the_middle_is_refused(bundle: Bundle) -> None:
    damaged = bundle.parameters.replace('"low":-', '"low":')

    with pytest.raises(ModelError, match="parameters: low: Input should be less than or equal to 0"):
        StartTimeForecaster.from_bundle(replace(bundle, parameters=damaged))


@pytest.mark.parametrize("change", [{"kind": "run_time"}, {"columns": COLUMNS[1:]}, {"outputs": ("log_wait",)}])
def test_foreign_model_is_refused(bundle: Bundle, change: dict[str, object]) -> None:
    with pytest.raises(ModelError, match="it was not made for the start times of this release"):
        StartTimeForecaster.from_bundle(replace(bundle, **change))  # type: ignore[arg-type]


def test_wait_is_never_below_a_minute_nor_beyond_a_life(bundle: Bundle, table: BacklogTable, tmp_path: Path) -> None:
    wide = bundle.parameters.replace('"low":-', '"low":-1000')

    found = StartTimeForecaster.from_bundle(replace(bundle, parameters=wide)).forecast(table)

    assert found.low.min() == pytest.approx(60.0)
