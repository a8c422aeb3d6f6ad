from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.errors import ModelError
from advisor.fit.fitted import to_onnx
from advisor.fit.publish import check_parity, publish_with_forests_of
from advisor.fit.run_time_choice import OURS, RIVAL, chosen, figures
from advisor.fit.run_time_fit import FEWEST_ROWS, fit_run_time
from advisor.predict.library import Library, opened
from advisor.predict.manifest import PARAMETERS
from advisor.predict.order_share import WaitedJobs
from advisor.predict.run_time import KIND, RunTimeForecaster
from advisor.predict.run_time_curve import Curves
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


def test_only_the_latest_rows_are_fitted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.fit.run_time_fit.MOST_ROWS", 250)

    fitted = fit_run_time(make_site(300), seed=0, keep_history=False)

    assert fitted.metrics["rows"] == 250
    assert "50 older" in fitted.text


TODAY = "2026-11-26"
SHIPPED = Library(Path("/nonexistent")).shipped_model(KIND)


def all_near(run_s: float, rows: int) -> Curves:
    """Return curves that put all runs near one time."""
    logs = np.log(run_s) + np.linspace(-0.1, 0.1, 5)
    return Curves(
        levels=np.tile(np.linspace(0.0, 1.0, 5), (rows, 1)), logs=np.tile(logs, (rows, 1)), cap=np.full(rows, 20.0)
    )


def waited_together(burst: NDArray[np.int64]) -> WaitedJobs:
    """Return jobs of one GPU that all waited at the same time, each burst of a user of its own."""
    count = len(burst)
    return WaitedJobs(
        submit_time=np.zeros(count), start_time=np.ones(count), gpus=np.ones(count), burst=burst, user=burst
    )


def test_figures_compare_two_models_by_burst() -> None:
    run_s, burst = np.array([3600.0, 3600.0, 3600.0, 36_000.0]), np.array([0, 0, 0, 1])
    drawn = {OURS: all_near(3600.0, 4), RIVAL: all_near(36_000.0, 4)}

    found = figures(drawn, np.zeros(4, np.int64), run_s, waited_together(burst), np.full(4, 86_400.0))

    assert (found["held_out_coverage"], found["held_out_coverage_by_burst"]) == (0.75, 0.5)
    assert (found["held_out_shipped_coverage"], found["held_out_shipped_coverage_by_burst"]) == (0.25, 0.5)
    assert (found["held_out_rows"], found["held_out_bursts"]) == (4, 2)
    # Each is right of one burst and wrong of the other by the same factor.
    assert found["held_out_loss"] == pytest.approx(found["held_out_shipped_loss"], rel=0.1)
    assert abs(found["held_out_loss_difference"]) < found["held_out_loss_difference_error"]
    # Of two users alone there is no order without one of them.
    assert "held_out_ordered" not in found


def test_figures_hold_the_order_by_the_mean_against_that_by_the_limit() -> None:
    run_s = np.array([600.0, 3600.0, 7200.0, 36_000.0])
    drawn = {OURS: all_near(3600.0, 4)}

    found = figures(drawn, np.zeros(4, np.int64), run_s, waited_together(np.arange(4)), run_s * 2)

    # One number for all orders half, limits that are twice the run times all.
    assert (found["held_out_ordered"], found["held_out_limit_ordered"]) == (0.5, 1.0)
    assert (found["held_out_order_gain"], found["held_out_order_users"]) == (-0.5, 4.0)


@pytest.mark.slow
def test_forests_of_the_site_are_served_where_they_are_better_than_those_that_ship() -> None:
    site = make_site(1500)
    waited = replace(site, end_time=site.end_time + 6 * 3600.0)
    rival = RunTimeForecaster.from_bundle(opened(SHIPPED)).curves
    found = fit_run_time(waited, seed=0, keep_history=True, rival=rival).metrics

    choice = chosen(found, SHIPPED.entry.version)

    assert found["held_out_loss"] < found["held_out_shipped_loss"]
    assert choice.ours and choice.tested is not None and choice.tested.coverage.jobs == found["held_out_rows"]
    assert f"those of default-1 of {found['held_out_shipped_loss']:.3f}" in choice.reason
    assert f"order {100.0 * found['held_out_ordered']:.1f} % right" in choice.reason
    assert f"time limits {100.0 * found['held_out_limit_ordered']:.1f} %" in choice.reason


@pytest.mark.parametrize(
    ("difference", "ours"),
    [(-0.03, True), (-0.01, False), (0.0, False), (0.03, False)],
    ids=["clearly better", "not clearly", "equal", "worse"],
)
def test_forests_of_the_site_have_to_be_better_by_more_than_the_standard_error(difference: float, ours: bool) -> None:
    found = {
        "held_out_rows": 400.0,
        "held_out_bursts": 50.0,
        "held_out_coverage": 0.75,
        "held_out_loss": 0.2 + difference,
        "held_out_shipped_coverage": 0.8,
        "held_out_shipped_loss": 0.2,
        "held_out_loss_difference": difference,
        "held_out_loss_difference_error": 0.02,
    }

    choice = chosen(found, "default-1")

    assert choice.ours is ours
    assert choice.reason.startswith("forests of this site" if ours else "forests of default-1")
    assert choice.tested is not None and choice.tested.coverage.inside == (300 if ours else 320)


def test_without_jobs_to_judge_by_the_forests_that_ship_are_served() -> None:
    choice = chosen({"rows": 210.0}, "default-1")

    assert not choice.ours and choice.tested is None
    assert "too few jobs" in choice.reason


@pytest.mark.slow
def test_version_with_the_forests_that_ship_knows_the_users_of_the_site(tmp_path: Path) -> None:
    site = make_site(400)
    fitted = fit_run_time(site, seed=0, keep_history=True)

    entry = publish_with_forests_of(SHIPPED, fitted, tmp_path, "site-1", today=TODAY)
    library = Library(tmp_path)
    library.use(KIND, "site-1")

    held = library.find(KIND, None)
    assert held.entry == entry and entry.digests[PARAMETERS] != SHIPPED.entry.digests[PARAMETERS]
    served, new = (RunTimeForecaster.from_bundle(opened(each)) for each in (held, SHIPPED))
    asked = make_jobs(user="user0", account="account0", submit_time=site.end_time.max() + 60.0)
    assert served.forecast(asked).mean_s[0] != new.forecast(asked).mean_s[0]
    new.history.add(site)
    # Histories are written in whole seconds.
    assert served.forecast(asked).mean_s[0] == pytest.approx(new.forecast(asked).mean_s[0], rel=1e-3)
    assert "The forests of run_time default-1" in (tmp_path / KIND / "site-1" / "card.md").read_text()


def test_package_without_its_model_is_an_error_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no run_time model in .*: install sadvise again"):
        Library(tmp_path, tmp_path / "package").shipped_model(KIND)
