"""Plans rolled out on the model of slurmctld: the same draws for all, and the same values every time."""

import numpy as np
import pytest

from advisor.domain.actions import SetGpus, SetNice
from advisor.domain.forecast import Forecasts, Interval, JobForecast, RunTime
from advisor.domain.gang import GpuCount, GpuScope
from advisor.domain.snapshot import Snapshot
from advisor.planning.case import Case
from advisor.planning.rollout import (
    Rollout,
    RolloutValues,
    TimedAction,
    mean_completion_s,
    mean_wait_s,
)
from advisor.sim.live.slurm_rollout import SlurmRollout
from tests.builders import HOUR_S, make_cluster, make_gang, make_hints, make_job, size_of

HORIZON_S = 24 * HOUR_S
RUN = RunTime(interval_s=Interval(low=600.0, median=1800.0, high=3000.0), mean_s=1800.0)


def full_cluster() -> Snapshot:
    """Four full nodes, and twelve jobs that wait; 101 first, and the others pass it if it steps back by 50."""
    running = [
        make_job(row, gpus=8, running_on=[f"n0{row}"], started_ago_s=600.0, time_limit_s=3600.0) for row in range(1, 5)
    ]
    gangs = [8, 1, 1, 2, 4, 8, 16, 1, 2, 4, 8, 32]
    waiting = [
        make_job(
            101 + rank, gang=make_gang(gpus), time_limit_s=3600.0, priority=1000 - rank, submitted_ago_s=1000.0 - rank
        )
        for rank, gpus in enumerate(gangs)
    ]
    return make_cluster([*running, *waiting])


def forecast_case(snapshot: Snapshot) -> Case:
    by_job = {job.job_id: JobForecast(run_time=RUN) for job in snapshot.jobs}
    return Case(snapshot=snapshot, forecasts=Forecasts(by_job=by_job))


LEFT_ALONE: tuple[TimedAction, ...] = ()
STEP_BACK = (TimedAction(action=SetNice(job_id=101, before=0, after=50)),)


def of_job(values: RolloutValues, job_id: int) -> int:
    return int(np.flatnonzero(values.job_ids == job_id)[0])


def test_plans_share_the_draws_and_a_plan_changes_what_it_must() -> None:
    rollout: Rollout = SlurmRollout(seed=1)

    values = rollout.values(
        forecast_case(full_cluster()), [LEFT_ALONE, STEP_BACK, LEFT_ALONE], horizon_s=HORIZON_S, draws=6
    )

    assert values.start_s.shape == values.end_s.shape == values.completion_s.shape == (3, 6, 16)
    np.testing.assert_array_equal(values.start_s[0], values.start_s[2])
    changed = of_job(values, 101)
    assert (values.start_s[1, :, changed] > values.start_s[0, :, changed]).all()
    # Gangs can run elsewhere under another plan, and then for longer.
    run_s = (values.end_s - values.start_s)[:, :, values.gpus == 1]
    np.testing.assert_allclose(run_s[0], run_s[1], atol=30.0)
    assert len(set(values.start_s[0, :, changed].tolist())) == 6


def test_values_do_not_depend_on_the_number_of_threads() -> None:
    case = forecast_case(full_cluster())

    one, four = (
        SlurmRollout(seed=1, threads=threads).values(case, [LEFT_ALONE, STEP_BACK], horizon_s=HORIZON_S, draws=8)
        for threads in (1, 4)
    )

    for name in ("start_s", "end_s", "completion_s"):
        np.testing.assert_array_equal(getattr(one, name), getattr(four, name))


def test_another_seed_draws_other_run_times() -> None:
    case = forecast_case(full_cluster())

    one, other = (SlurmRollout(seed=seed).values(case, [LEFT_ALONE], horizon_s=HORIZON_S, draws=1) for seed in (1, 2))

    assert not np.array_equal(one.start_s, other.start_s)


def test_metrics_count_what_is_open_at_the_horizon() -> None:
    values = SlurmRollout(seed=1).values(forecast_case(full_cluster()), [LEFT_ALONE], horizon_s=60.0, draws=2)

    assert np.isnan(values.start_s[:, :, values.was_pending]).all()
    assert mean_wait_s(values).tolist() == [[60.0, 60.0]]
    assert np.isfinite(values.completion_s).all()


def test_fewer_gpus_start_sooner_and_take_longer_as_the_planner_believes() -> None:
    running = make_job(1, gpus=24, running_on=["n01", "n02", "n03"], time_limit_s=7200.0, started_ago_s=0.0)
    wide = make_job(2, gang=make_gang(16), hints=make_hints(gpus=(4, 16)), time_limit_s=2 * HOUR_S)
    smaller = SetGpus(
        job_id=2, scope=GpuScope.JOB, before=size_of(GpuCount(count=16)), after=size_of(GpuCount(count=8))
    )
    exact = RunTime(interval_s=Interval(low=1800.0, median=1800.0, high=1800.0), mean_s=1800.0)
    forecasts = Forecasts(by_job={1: JobForecast(run_time=exact), 2: JobForecast(run_time=exact)})

    values = SlurmRollout().values(
        Case(snapshot=make_cluster([running, wide]), forecasts=forecasts),
        [LEFT_ALONE, (TimedAction(action=smaller),)],
        horizon_s=HORIZON_S,
        draws=1,
    )

    row = of_job(values, 2)
    assert values.start_s[0, 0, row] >= 1800.0
    assert values.start_s[1, 0, row] < 60.0
    run_s = values.end_s[:, 0, row] - values.start_s[:, 0, row]
    assert run_s.tolist() == pytest.approx([1800.0, 1800.0 * 2.0**0.9])


def test_later_draws_are_those_of_a_longer_list() -> None:
    case = forecast_case(full_cluster())

    rollout: Rollout = SlurmRollout(seed=3)
    whole = rollout.values(case, [LEFT_ALONE, STEP_BACK], horizon_s=HORIZON_S, draws=4)
    part = rollout.values(case, [STEP_BACK], horizon_s=HORIZON_S, draws=2, first_draw=2)

    np.testing.assert_array_equal(part.start_s[0], whole.start_s[1, 2:])
    np.testing.assert_array_equal(part.completion_s[0], whole.completion_s[1, 2:])


def test_job_without_limit_and_forecast_leaves_the_mean_finite() -> None:
    endless = make_job(1, gpus=8, running_on=["n01"], time_limit_s=None, started_ago_s=600.0)
    case = Case(snapshot=make_cluster([endless, make_job(2, gang=make_gang(32), time_limit_s=None)]))

    values = SlurmRollout().values(case, [LEFT_ALONE], horizon_s=HORIZON_S, draws=2)

    assert np.isfinite(mean_completion_s(values)).all()
    assert (values.completion_s[:, :, of_job(values, 1)] >= HORIZON_S).all()
