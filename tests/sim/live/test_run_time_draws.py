"""Draws of run times: what a forecast says, for a job that waits and for one that has run for a while."""

import numpy as np
import pytest

from advisor.domain.forecast import NO_FORECASTS, Forecasts, Interval, JobForecast, RunTime
from advisor.domain.job import JobState
from advisor.sim.live.draws import by_forecasts, uniforms, within_limits
from advisor.sim.live.snapshot_model import SnapshotModel, model_of
from tests.builders import make_cluster, make_job

LIMIT_S = 10_000.0
HOUR = RunTime(interval_s=Interval(low=1800.0, median=3600.0, high=5400.0), mean_s=3600.0)


def forecast(*job_ids: int, run_time: RunTime = HOUR) -> Forecasts:
    return Forecasts(by_job={job_id: JobForecast(run_time=run_time) for job_id in job_ids})


def one_job(*, ran_s: float | None = None, state: JobState | None = None) -> SnapshotModel:
    where = [] if ran_s is None else ["n01"]
    return model_of(
        make_cluster([make_job(1, running_on=where, started_ago_s=ran_s or 0.0, time_limit_s=LIMIT_S, state=state)])
    )


@pytest.mark.parametrize(("share", "run_s"), [(0.1, 1800.0), (0.5, 3600.0), (0.9, 5400.0)])
def test_draw_of_a_waiting_job_has_the_interval_and_the_median_of_its_forecast(share: float, run_s: float) -> None:
    run_time_s = by_forecasts(one_job(), forecast(1), np.array([[share]]))

    assert run_time_s[0, 0] == pytest.approx(run_s)


def test_running_job_draws_from_the_run_times_beyond_what_it_has_run() -> None:
    model, uniform = one_job(ran_s=3600.0), np.array([[0.0], [0.8], [0.999]])

    run_time_s = by_forecasts(model, forecast(1), uniform)

    # Half of the runs are over by then: of the rest, four fifths are below what nine tenths of all are below.
    assert run_time_s[0, 0] == pytest.approx(3601.0, abs=1.0)
    assert run_time_s[1, 0] == pytest.approx(5400.0)
    assert run_time_s[2, 0] > 5400.0


def test_job_that_has_outlived_its_forecast_ends_soon_and_after_now() -> None:
    run_time_s = by_forecasts(one_job(ran_s=9000.0), forecast(1), np.array([[0.5], [1.0 - 1e-16]]))

    assert (run_time_s > 9000.0).all()
    assert np.isfinite(run_time_s).all()


@pytest.mark.parametrize("low_s", [0.0, 3600.0])
def test_interval_without_width_or_from_zero_gives_finite_run_times(low_s: float) -> None:
    narrow = RunTime(interval_s=Interval(low=low_s, median=3600.0, high=3600.0), mean_s=3600.0)

    for model in (one_job(), one_job(ran_s=3600.0), one_job(ran_s=5000.0)):
        run_time_s = by_forecasts(model, forecast(1, run_time=narrow), np.array([[0.0], [0.5], [1.0 - 1e-16]]))

        assert np.isfinite(run_time_s).all()
        assert (run_time_s > 0.0).all()


def test_job_without_a_forecast_takes_its_limit_and_a_completing_one_ends() -> None:
    without = by_forecasts(one_job(), NO_FORECASTS, np.array([[0.3]]))
    ending = by_forecasts(one_job(ran_s=500.0, state=JobState.COMPLETING), forecast(1), np.array([[0.3]]))

    assert without.tolist() == [[LIMIT_S]]
    assert ending.tolist() == [[500.0]]


def test_job_without_a_forecast_uses_its_limit_in_equal_shares_and_at_least_what_it_has_used() -> None:
    uniform = np.array([[0.0], [0.5], [1.0]])

    waiting = by_forecasts(one_job(), NO_FORECASTS, uniform, used_limit_ratio_low=0.2)
    running = by_forecasts(one_job(ran_s=6000.0), NO_FORECASTS, uniform, used_limit_ratio_low=0.2)

    assert waiting[:, 0] == pytest.approx([2000.0, 6000.0, 10_000.0])
    assert running[:, 0] == pytest.approx([6000.0, 8000.0, 10_000.0])


def test_run_times_end_at_the_limits_and_after_the_horizon_without_one() -> None:
    endless = model_of(make_cluster([make_job(1, running_on=["n01"], started_ago_s=500.0, time_limit_s=None)]))

    assert within_limits(one_job(), np.array([[LIMIT_S + 1.0]]), 60.0).tolist() == [[LIMIT_S]]
    assert within_limits(endless, np.array([[np.inf]]), 60.0).tolist() == [[560.0]]


def test_forecast_goes_to_its_job() -> None:
    jobs = [make_job(job_id, submitted_ago_s=100.0 * job_id, time_limit_s=LIMIT_S) for job_id in (1, 2, 3)]
    model = model_of(make_cluster(jobs))

    run_time_s = by_forecasts(model, forecast(3), np.full((1, 3), 0.5))

    assert dict(zip(model.trace.jobs["job_id"].tolist(), run_time_s[0].tolist(), strict=True)) == pytest.approx(
        {1: LIMIT_S, 2: LIMIT_S, 3: 3600.0}
    )


def test_a_draw_does_not_depend_on_how_many_there_are() -> None:
    few, many = uniforms(one_job(), range(2), seed=5), uniforms(one_job(), range(8), seed=5)

    assert few.tolist() == many[:2].tolist()
    assert len(set(many[:, 0].tolist())) == 8
    assert uniforms(one_job(), range(2), seed=6).tolist() != few.tolist()
