"""What the planner does otherwise when models speak, and that rules serve where they do not."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import pytest

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import SetGpus, SetNice, SetSwitches
from advisor.domain.forecast import Forecasts, Interval, JobForecast, Placement, RunTime
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.planning.lift_gain import SHARES
from advisor.settings import Limits
from advisor.view.sentences import assumption
from tests.builders import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    make_config,
    make_gang,
    make_hints,
    make_job,
    make_node,
    make_snapshot,
)
from tests.planning.test_placement import TWO_NODES

A = TypeVar("A", SetGpus, SetNice, SetSwitches)
ONE_LEAF, SPINE, ONE_NODE = LocalityTier.LEAF, LocalityTier.SPINE, LocalityTier.NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedForecaster:
    """A forecaster with a fixed forecast for each job."""

    by_job: Mapping[int, JobForecast]

    def forecasts(self, snapshot: Snapshot) -> Forecasts:
        """Return the forecasts of the jobs in a snapshot."""
        return Forecasts(
            by_job={job.job_id: self.by_job[job.job_id] for job in snapshot.jobs if job.job_id in self.by_job}
        )


def exactly(value: float) -> Interval:
    """An interval without width."""
    return Interval(low=value, median=value, high=value)


def runs(hours: float, *, spread: float = 1.0) -> RunTime:
    """A run time of some hours, with an interval from hours / spread to hours * spread."""
    return RunTime(
        interval_s=Interval(low=hours * HOUR_S / spread, median=hours * HOUR_S, high=hours * HOUR_S * spread),
        mean_s=hours * HOUR_S,
    )


def judged(snapshot: Snapshot, by_job: Mapping[int, JobForecast]) -> CycleRecord:
    """Run a cycle with the forecasts."""
    limits = Limits(max_added_delay_s=30 * DAY_S)
    return Cycle(forecaster=FixedForecaster(by_job=by_job), limits=limits).judge(snapshot)


def actions(record: CycleRecord, kind: type[A]) -> dict[int, A]:
    """Map jobs to their recommended actions of one kind."""
    return {change.job_id: change.action for change in record.recommendations if isinstance(change.action, kind)}


def full(*jobs: Job) -> Snapshot:
    """A node of eight GPUs, all in use for ten more hours."""
    running = make_job(900, gpus=8, running_on=["n01"], started_ago_s=0.0, time_limit_s=10 * HOUR_S)
    return make_snapshot([running, *jobs], [make_node("n01", used=8)])


def two_of_one_limit() -> Snapshot:
    first = make_job(1, gpus=8, priority=1000, time_limit_s=4.5 * HOUR_S)
    second = make_job(2, gpus=8, priority=900, time_limit_s=4.5 * HOUR_S)
    return full(first, second)


def test_order_follows_the_forecast_where_limits_are_equal() -> None:
    by_rule = judged(two_of_one_limit(), {})
    by_model = judged(two_of_one_limit(), {1: JobForecast(run_time=runs(4)), 2: JobForecast(run_time=runs(0.5))})

    assert actions(by_rule, SetNice) == {}
    assert set(actions(by_model, SetNice)) == {2}
    # The second passes 4 h of work; of 4.5 h that both are expected to run, each takes half.
    saved_s_high = (SHARES.passed * 4 + SHARES.run * 2.25) * HOUR_S
    assert by_model.recommendations[0].expected.saved_s_high == pytest.approx(saved_s_high)
    assert "Run times as forecast" in assumption(by_model.recommendations[0])


def test_job_without_a_forecast_is_taken_to_use_the_share_of_its_limit_that_others_use() -> None:
    # A tenth of the limit is used by the one that is forecast, so the other is expected to use as much.
    record = judged(two_of_one_limit(), {2: JobForecast(run_time=runs(0.45))})

    assert actions(record, SetNice) == {}


def elastic(**speeds: float) -> tuple[Snapshot, dict[int, JobForecast]]:
    """A job of four GPUs that may take two to eight, on an idle node, and its speeds by size."""
    job = make_job(1, gpus=4, time_limit_s=10 * HOUR_S, hints=make_hints(gpus=(2, 8), checkpoint_s=300.0))
    by_placement = {Placement(gpus=int(size[1:]), tier=ONE_NODE): exactly(speed) for size, speed in speeds.items()}
    forecast = JobForecast(run_time=runs(8), speed_by_placement=by_placement)
    return make_snapshot([job], [make_node("n01")]), {1: forecast}


def test_job_grows_where_its_forecast_curve_rises() -> None:
    snapshot, by_job = elastic(g2=0.5, g4=1.0, g8=2.0)

    record = judged(snapshot, by_job)

    assert [change.after.count for change in actions(record, SetGpus).values()] == [8]
    assert record.recommendations[0].expected.saved_s_high == pytest.approx(4 * HOUR_S)
    assert "Speeds as forecast" in assumption(record.recommendations[0])


def test_job_does_not_grow_where_its_forecast_curve_is_flat() -> None:
    snapshot, by_job = elastic(g2=0.9, g4=1.0, g8=1.05)

    assert actions(judged(snapshot, by_job), SetGpus) == {}
    assert actions(judged(snapshot, {}), SetGpus) != {}


def test_smaller_job_gets_the_limit_that_its_forecast_speed_calls_for() -> None:
    def two_free(hours: float) -> CycleRecord:
        hints = make_hints(gpus=(2, 8))
        waiting = make_job(1, gpus=4, time_limit_s=10 * HOUR_S, hints=hints)
        running = make_job(2, gpus=6, running_on=["n01"], time_limit_s=30 * DAY_S, started_ago_s=0.0)
        speeds = {Placement(gpus=2, tier=ONE_NODE): exactly(0.5), Placement(gpus=4, tier=ONE_NODE): exactly(1.0)}
        forecast = JobForecast(run_time=runs(hours), speed_by_placement=speeds)
        return judged(make_snapshot([waiting, running], [make_node("n01", used=6)]), {1: forecast})

    # At half the speed it needs twice the limit, however much of it the run is expected to use.
    for hours in (4.0, 9.0):
        assert actions(two_free(hours), SetGpus)[1].after.time_limit_s == 20 * HOUR_S


def spread_gang(*, leaf_free_in_s: float | None) -> Snapshot:
    """A gang of two nodes that fits now only across leaves; one leaf comes free after a time, or never."""
    gang = make_job(1, gang=TWO_NODES, submitted_ago_s=60.0, time_limit_s=2 * DAY_S)
    running = [make_job(50, gpus=8, running_on=["n02"], started_ago_s=0.0, time_limit_s=20 * DAY_S)]
    if leaf_free_in_s is not None:
        running.append(make_job(51, gpus=8, running_on=["n04"], started_ago_s=0.0, time_limit_s=20 * DAY_S))
    else:
        running.append(make_job(51, gpus=8, running_on=["n04"], started_ago_s=0.0, time_limit_s=None))
    nodes = [make_node(name, used=8 if name in ("n02", "n04") else 0) for name in ("n01", "n02", "n03", "n04")]
    return make_snapshot([gang, *running], nodes, config=make_config(scheduler_parameters={"max_switch_wait": "86400"}))


def gang_forecast(*, spread_speed: float) -> JobForecast:
    speeds = {
        Placement(gpus=16, tier=ONE_LEAF): exactly(1.0),
        Placement(gpus=16, tier=SPINE): exactly(spread_speed),
    }
    return JobForecast(run_time=runs(10), speed_by_placement=speeds)


def test_gang_waits_for_a_leaf_that_is_expected_free_in_time() -> None:
    by_job = {1: gang_forecast(spread_speed=0.5), 51: JobForecast(run_time=runs(0.25))}

    record = judged(spread_gang(leaf_free_in_s=900.0), by_job)

    assert set(actions(record, SetSwitches)) == {1}
    assert "by 100% spread out and by 0% on one leaf switch, as forecast" in assumption(record.recommendations[0])


def test_gang_without_a_limit_waits_for_what_its_forecast_says_it_saves() -> None:
    by_job = {1: gang_forecast(spread_speed=0.5), 51: JobForecast(run_time=runs(0.25))}
    snapshot = spread_gang(leaf_free_in_s=900.0)
    jobs = tuple(replace(job, time_limit_s=None) if job.job_id == 1 else job for job in snapshot.jobs)

    # Ten hours would save as many; half an hour is assumed, and at most three times that.
    (action,) = actions(judged(replace(snapshot, jobs=jobs), by_job), SetSwitches).values()

    assert action.after is not None
    assert action.after.max_wait_s == 1.5 * HOUR_S


def test_cost_of_spreading_is_an_interval_where_the_mean_lies_above_it() -> None:
    long_tail = RunTime(interval_s=exactly(HOUR_S), mean_s=10 * HOUR_S)
    by_job = {1: replace(gang_forecast(spread_speed=0.5), run_time=long_tail), 51: JobForecast(run_time=runs(0.25))}

    (change,) = judged(spread_gang(leaf_free_in_s=900.0), by_job).recommendations

    cost = [change.evidence[f"spread_cost_s{end}"] for end in ("_low", "", "_high")]
    assert cost == [HOUR_S, 10 * HOUR_S, 10 * HOUR_S]


def test_gang_does_not_begin_a_wait_in_vain() -> None:
    by_job = {1: gang_forecast(spread_speed=0.5), 51: JobForecast(run_time=runs(20))}

    assert actions(judged(spread_gang(leaf_free_in_s=None), by_job), SetSwitches) == {}
    assert actions(judged(spread_gang(leaf_free_in_s=72_000.0), by_job), SetSwitches) == {}


@pytest.mark.parametrize(("spread_speed", "waits"), [(1.0, False), (0.96, False), (0.94, True)])
def test_gang_that_spreading_hardly_slows_never_waits(spread_speed: float, waits: bool) -> None:
    # Thirty hours at 0.96 would lose 75 min, more than a wait; but below 5 % nobody waits.
    gang = replace(gang_forecast(spread_speed=spread_speed), run_time=runs(30))
    by_job = {1: gang, 51: JobForecast(run_time=runs(0.25))}

    assert bool(actions(judged(spread_gang(leaf_free_in_s=900.0), by_job), SetSwitches)) is waits


def test_neighbours_that_a_spread_gang_would_meet_make_waiting_worth_more() -> None:
    quick = {51: JobForecast(run_time=runs(0.25))}
    alone = JobForecast(run_time=runs(1.0), speed_by_placement=gang_forecast(spread_speed=0.9).speed_by_placement)
    beside = JobForecast(run_time=runs(1.0), speed_by_placement=alone.speed_by_placement, inflation_beside=exactly(1.5))

    waits = [
        actions(judged(spread_gang(leaf_free_in_s=900.0), {1: each, **quick}), SetSwitches) for each in (alone, beside)
    ]

    # An hour at 1/0.9 alone costs 6 min, and the leaf comes free in 15; beside the neighbours it costs 40.
    assert waits[0] == {}
    after = waits[1][1].after
    assert after is not None
    assert after.max_wait_s == 40 * MINUTE_S


def test_forecast_of_a_job_alone_changes_nothing_about_others() -> None:
    gang = make_gang(4)
    snapshot = make_snapshot([make_job(1, gang=gang)], [make_node("n01")])

    assert judged(snapshot, {1: JobForecast(run_time=runs(1))}).recommendations == ()
