from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import ModelError
from advisor.fit.fitted import to_onnx
from advisor.fit.publish import check_parity
from advisor.fit.run_time_fit import FEWEST_ROWS, fit_run_time
from tests.predict.run_time_jobs import make_jobs, make_site


@pytest.mark.slow
def test_equal_inputs_give_equal_models() -> None:
    first, second = (fit_run_time(make_site(300), seed=4, keep_history=True) for _ in range(2))

    assert first.parameters == second.parameters
    assert to_onnx(first.regressors, len(first.columns)) == to_onnx(second.regressors, len(second.columns))


def test_the_graph_answers_as_the_forests_do() -> None:
    fitted = fit_run_time(make_site(600), seed=0, keep_history=False)

    parity = check_parity(fitted, to_onnx(fitted.regressors, len(fitted.columns)))

    assert parity.max_error < 1e-6


def test_a_site_of_one_kind_of_job_fits() -> None:
    site = make_site(300, users=1)
    same = replace(site, run_s=np.full(300, 3600.0), end_time=site.jobs.submit_time + 3600.0)

    fitted = fit_run_time(same, seed=0, keep_history=False)

    assert check_parity(fitted, to_onnx(fitted.regressors, len(fitted.columns))).max_error < 1e-6


def test_poisoned_rows_are_left_out_and_counted() -> None:
    site = make_site(800)
    run_s, limit_s = site.run_s.copy(), site.jobs.limit_s.copy()
    run_s[:5], run_s[5:8], run_s[8:10] = -1.0, np.nan, 1e18
    limit_s[10:14], limit_s[14:20] = 0.0, np.inf
    end_time = site.end_time.copy()
    end_time[20:23] = np.inf

    fitted = fit_run_time(
        replace(site, jobs=replace(site.jobs, limit_s=limit_s), run_s=run_s, end_time=end_time),
        seed=0,
        keep_history=True,
    )

    assert fitted.metrics["rows"] == 777
    assert fitted.metrics["rows_left_out"] == 23
    for count in ("8 no run time", "3 no submit or end time", "10 no time limit", "2 ran far beyond"):
        assert count in fitted.text


def test_jobs_without_memory_gpu_count_or_name_fit() -> None:
    site, nothing = make_site(400), np.full(400, np.nan)

    jobs = replace(site.jobs, memory_mib=nothing, gpus=nothing)
    fitted = fit_run_time(replace(site, jobs=jobs), seed=0, keep_history=False)

    assert np.isfinite(fitted.probe).all()


@pytest.mark.parametrize("rows", [0, 1, FEWEST_ROWS - 1])
def test_too_few_jobs_are_an_error_that_says_how_many(rows: int) -> None:
    site = make_site(400).take(np.arange(rows))

    with pytest.raises(ModelError, match=f"{rows} of {rows} jobs can be learnt from") as refused:
        fit_run_time(site, seed=0, keep_history=False)

    assert "\n" not in str(refused.value)


def test_a_table_whose_columns_differ_in_length_is_no_table() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        replace(make_jobs(3), gpus=np.ones(2))


def test_only_the_latest_rows_are_fitted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.fit.run_time_fit.MOST_ROWS", 250)

    fitted = fit_run_time(make_site(300), seed=0, keep_history=False)

    assert fitted.metrics["rows"] == 250
    assert "50 older" in fitted.text
