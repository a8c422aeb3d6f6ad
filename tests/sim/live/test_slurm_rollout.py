"""What every rollout keeps to, the contract of `advisor.planning.rollout.Rollout`, and the run times that it draws."""

import numpy as np
import pytest
from hypothesis import given, settings

from advisor.cycle import Cycle
from advisor.domain.actions import NodeRange, SetGpus, SetNice, SetNodeRange
from advisor.domain.forecast import NO_FORECASTS, Forecasts, Interval, JobForecast, RunTime
from advisor.domain.gang import GpuCount, GpuScope
from advisor.domain.job import JobState
from advisor.domain.plan import Kind, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.planning.case import Case
from advisor.planning.plan_trial import TrialSize, is_tried
from advisor.planning.rollout import (
    Rollout,
    RolloutValues,
    TimedAction,
    mean_completion_s,
    mean_wait_s,
)
from advisor.sim.live.draws import by_forecasts, uniforms, within_limits
from advisor.sim.live.rollout_trial import RolloutTrial
from advisor.sim.live.slurm_rollout import SlurmRollout
from advisor.sim.live.snapshot_model import SnapshotModel, model_of
from advisor.sim.policies.advised import few_rollouts
from tests.builders import HOUR_S, make_cluster, make_gang, make_hints, make_job, make_recommendation, size_of
from tests.examples import examples
from tests.fake_cluster import fragmented
from tests.sim.building import run_of
from tests.sim.test_advised import EAGER, one_node, queue_of_one_long_and_four_short
from tests.strategies import snapshots

FULL = [make_job(number, gpus=8, running_on=[f"n0{number}"], time_limit_s=2 * HOUR_S) for number in range(1, 5)]
WAITING = [make_job(10 + number, gang=make_gang(4), priority=100 - number, time_limit_s=HOUR_S) for number in range(4)]
CASE = Case(snapshot=make_cluster([*FULL, *WAITING]))
LEFT_ALONE: tuple[TimedAction, ...] = ()
RAISED = (TimedAction(action=SetNice(job_id=13, before=0, after=-50)),)
UNKNOWN = (TimedAction(action=SetNice(job_id=999, before=0, after=-50)),)


def check(rollout: Rollout) -> None:
    """Check the contract; a change of a job that is not there has no effect."""
    values = rollout.values(CASE, [LEFT_ALONE, RAISED, LEFT_ALONE, UNKNOWN], horizon_s=HOUR_S, draws=3)
    again = rollout.values(CASE, [LEFT_ALONE, RAISED, LEFT_ALONE, UNKNOWN], horizon_s=HOUR_S, draws=3)
    later = rollout.values(CASE, [RAISED], horizon_s=HOUR_S, draws=2, first_draw=1)

    count = len(values.job_ids)
    assert sorted(values.job_ids.tolist()) == sorted(job.job_id for job in CASE.snapshot.jobs)
    assert values.start_s.shape == values.end_s.shape == values.completion_s.shape == (4, 3, count)
    assert values.gpus.shape == values.was_pending.shape == (count,)
    assert np.isfinite(values.completion_s).all() and values.horizon_s == HOUR_S
    assert mean_completion_s(values).shape == mean_wait_s(values).shape == (4, 3)
    # Equal plans and equal calls have equal values, and a draw is known by its number.
    for name in ("start_s", "end_s", "completion_s"):
        of_name = getattr(values, name)
        np.testing.assert_array_equal(of_name, getattr(again, name))
        np.testing.assert_array_equal(of_name[0], of_name[2])
        np.testing.assert_array_equal(of_name[0], of_name[3])
        np.testing.assert_array_equal(of_name[1, 1:], getattr(later, name)[0])


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


SMALL = TrialSize(plans=4, draws=2, horizon_s=3600.0)


def changes_of(snapshot: Snapshot) -> list[Recommendation]:
    """Lift every other pending job, and hold the rest to one node."""
    pending = sorted(snapshot.pending, key=lambda job: job.job_id)
    lifts = [make_recommendation(SetNice(job_id=job.job_id, before=job.nice, after=-9)) for job in pending[::2]]
    holds = [
        make_recommendation(
            SetNodeRange(job_id=job.job_id, before=NodeRange(low=1, high=2), after=NodeRange(low=1, high=1)),
            kind=Kind.CONSOLIDATE,
            revert_after_s=600.0,
        )
        for job in pending[1::2]
    ]
    return [*lifts, *holds]


def test_rollout_on_the_model_keeps_to_the_contract() -> None:
    check(SlurmRollout(seed=2))


@pytest.mark.parametrize("threads", [1, 3])
def test_trial_does_not_depend_on_the_number_of_threads(threads: int) -> None:
    changes = changes_of(CASE.snapshot)

    one, other = (RolloutTrial(size=SMALL, threads=count).tried(CASE, changes) for count in (2, threads))

    assert one == other
    assert one.effect is not None


def test_cycle_records_the_trial_of_its_plan() -> None:
    snapshot = fragmented().snapshot()

    untried, tried = (Cycle(trial=trial).judge(snapshot) for trial in (None, RolloutTrial(size=SMALL)))

    assert any(map(is_tried, untried.judged))
    assert untried.trial.effect is None
    assert tried.trial.effect is not None
    assert [change.action for change in tried.judged] == [change.action for change in untried.judged]


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(seen=snapshots())
def test_no_snapshot_makes_a_trial_fail(seen: Snapshot) -> None:
    changes = changes_of(seen)

    trial = RolloutTrial(size=SMALL, threads=1).tried(Case(snapshot=seen), changes)

    assert {one.job_id for one in trial.changes} == {change.job_id for change in changes if is_tried(change)}


def test_policy_with_rollouts_lifts_as_the_rules_do() -> None:
    jobs = queue_of_one_long_and_four_short()

    rules, tried = (run_of(jobs, one_node(), policy, EAGER) for policy in ("rules", "rules-rollout"))

    assert rules.outcomes.tolist() == tried.outcomes.tolist()
    assert few_rollouts() is not few_rollouts()


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
