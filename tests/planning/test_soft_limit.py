"""Which jobs get a soft limit, which one, and what is said of it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as drawn
from hypothesis import strategies as st

from advisor.cycle import Cycle
from advisor.domain.actions import Reason, SetNice, SetTimeMin
from advisor.domain.forecast import Forecasts, Interval, JobForecast, RunTime
from advisor.domain.job import Job
from advisor.domain.plan import Kind, Permits, Plan, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.features.capacity import node_table
from advisor.features.queue import queue_table
from advisor.features.supply import releases
from advisor.planning import soft_limit
from advisor.planning.case import Case
from advisor.planning.line import plan
from advisor.settings import Limits, PlanningSettings
from advisor.view.sentences import assumption, sentence
from tests.builders import DAY_S, HOUR_S, MINUTE_S, make_config, make_gang, make_job, make_node, make_snapshot
from tests.examples import examples
from tests.planning.test_planner import contended

SOFT = {"max_switch_wait": "86400", "time_min_as_soft_limit": ""}
LASTING = make_config(slurm_version="26.05.5", scheduler_parameters=SOFT)


def run_time(low_s: float, median_s: float, high_s: float) -> JobForecast:
    """A forecast of the run time and nothing else."""
    interval = Interval(low=low_s, median=median_s, high=high_s)
    return JobForecast(run_time=RunTime(interval_s=interval, mean_s=median_s))


HOUR_OR_TWO = run_time(0.5 * HOUR_S, HOUR_S, 2 * HOUR_S)


def blocked(*waiting: Job, hours: float = 2.0) -> Snapshot:
    """Two nodes: one runs for some hours, half of the other for one; a gang wants both, and others wait behind it."""
    running = [
        make_job(90, gpus=8, running_on=["n01"], started_ago_s=0.0, time_limit_s=hours * HOUR_S),
        make_job(91, gpus=4, running_on=["n02"], started_ago_s=0.0, time_limit_s=HOUR_S),
    ]
    gang = make_job(80, gang=make_gang(16), priority=5000, time_limit_s=2 * HOUR_S)
    nodes = [make_node("n01", used=8), make_node("n02", used=4)]
    return make_snapshot([*running, gang, *waiting], nodes, config=LASTING)


SMALL = make_job(1, gpus=4, time_limit_s=10 * HOUR_S)


def proposed(
    snapshot: Snapshot,
    forecasts: Forecasts,
    *,
    settings: PlanningSettings | None = None,
    limits: Limits | None = None,
    done: frozenset[int] = frozenset(),
) -> list[Recommendation]:
    """Return the soft limits for a snapshot alone, whatever else there is to propose."""
    case = Case(
        snapshot=snapshot,
        settings=settings or PlanningSettings(),
        limits=limits or Limits(),
        forecasts=forecasts,
        permits=Permits(left_alone=dict.fromkeys(done, "not_held")),
    )
    return list(soft_limit.recommendations(case))


def soft_limits(changes: Plan | list[Recommendation]) -> dict[int, float | None]:
    """Map jobs to the soft limits that they are proposed."""
    found = changes.recommendations if isinstance(changes, Plan) else changes
    return {change.job_id: change.action.after for change in found if isinstance(change.action, SetTimeMin)}


def test_job_forecast_to_end_early_is_planned_with_the_high_end_of_its_forecast() -> None:
    changes = proposed(blocked(SMALL), Forecasts(by_job={1: HOUR_OR_TWO}))

    assert [change.action for change in changes] == [SetTimeMin(job_id=1, before=None, after=2 * HOUR_S)]
    assert (changes[0].kind, changes[0].reason) == (Kind.REORDER, Reason.RUNS_SHORTER_THAN_LIMIT)
    assert changes[0].revert_after_s is None


def test_numbers_and_words_say_what_it_may_bring_and_cost() -> None:
    (change,) = proposed(blocked(SMALL), Forecasts(by_job={1: HOUR_OR_TWO}))

    assert change.evidence == {
        "time_limit_s": 10 * HOUR_S,
        "soft_limit_s": 2 * HOUR_S,
        "run_time_s_low": 0.5 * HOUR_S,
        "run_time_s_median": HOUR_S,
        "run_time_s_high": 2 * HOUR_S,
        "chance_longer": 0.1,
        "chance_others_delayed": 0.1,
        "others_delayed_s_max": 8 * HOUR_S,
        # 8 GPUs for 2 h, 4 for 1 h and the gang's 16 for 2 h stand before it on 16.
        "expected_wait_s_max": (16 + 4 + 32) / 16 * HOUR_S,
    }
    assert (change.expected.saved_s_low, change.expected.saved_s_high) == (0.0, 3.25 * HOUR_S)
    assert (change.expected.added_delay_max_s, change.expected.jobs_helped) == (0.0, 1)
    assert "It asks for 10.0 h and should run 30 min to 2.0 h" in sentence(change)
    assert "Its limit stays" in sentence(change)
    assert "1 in 10 such jobs runs longer" in assumption(change)
    assert "up to 8.0 h later" in assumption(change)


def test_release_that_forgets_soft_limits_of_running_jobs_is_said_to() -> None:
    old = replace(blocked(SMALL), config=make_config(slurm_version="24.11.5", scheduler_parameters=SOFT))

    (change,) = proposed(old, Forecasts(by_job={1: HOUR_OR_TWO}))

    assert change.evidence["chance_others_delayed"] == 1.0
    assert "before 25.05.4" in assumption(change)
    assert "Slurm before 25.05.4 plans with its whole limit" in assumption(change)


@pytest.mark.parametrize(
    ("high_s", "parameters", "soft_s"),
    [
        pytest.param(3601.0, {}, 61 * MINUTE_S, id="whole minutes, up"),
        pytest.param(3600.0, {}, 60 * MINUTE_S, id="whole minutes as they are"),
        pytest.param(20.0, {}, MINUTE_S, id="never below a minute"),
        pytest.param(20.0, {"bf_resolution": "600"}, 600.0, id="never below the resolution of backfill"),
        pytest.param(20.0, {"bf_resolution": "90"}, 120.0, id="a resolution in whole minutes"),
    ],
)
def test_soft_limit_counts_in_steps_that_backfill_knows(
    high_s: float, parameters: dict[str, str], soft_s: float
) -> None:
    config = make_config(scheduler_parameters={**SOFT, **parameters})

    found = soft_limit.soft_limit_s(SMALL, Interval(low=1.0, median=2.0, high=high_s), config, PlanningSettings())

    assert found == soft_s


@pytest.mark.parametrize(
    ("job", "forecast", "settings"),
    [
        pytest.param(replace(SMALL, time_limit_s=None), HOUR_OR_TWO, {}, id="no limit"),
        pytest.param(replace(SMALL, time_min_s=HOUR_S), HOUR_OR_TWO, {}, id="the user set TimeMin"),
        pytest.param(SMALL, run_time(HOUR_S, 2 * HOUR_S, 8 * HOUR_S), {}, id="too little below the limit"),
        pytest.param(SMALL, HOUR_OR_TWO, {"soft_limit_ratio_high": 0.1}, id="the settings ask for more"),
        pytest.param(replace(SMALL, time_limit_s=600.0), run_time(1.0, 2.0, 60.0), {}, id="too few minutes to save"),
        pytest.param(SMALL, JobForecast(unknown=("run time: outside what the model saw",)), {}, id="not known"),
    ],
)
def test_job_without_much_to_gain_is_left_alone(job: Job, forecast: JobForecast, settings: dict[str, float]) -> None:
    changes = proposed(blocked(job), Forecasts(by_job={1: forecast}), settings=PlanningSettings(**settings))  # type: ignore[arg-type]

    assert changes == []


def test_just_three_quarters_of_the_limit_are_worth_it() -> None:
    forecasts = Forecasts(by_job={1: run_time(HOUR_S, 2 * HOUR_S, 7.5 * HOUR_S)})

    assert soft_limits(proposed(blocked(SMALL, hours=8.0), forecasts)) == {1: 7.5 * HOUR_S}


def test_job_without_a_forecast_and_one_that_is_done_with_are_left_alone() -> None:
    other = make_job(2, gpus=4, time_limit_s=10 * HOUR_S, priority=900)
    forecasts = Forecasts(by_job={1: HOUR_OR_TWO})

    assert soft_limits(proposed(blocked(SMALL, other), forecasts)) == {1: 2 * HOUR_S}
    assert proposed(blocked(SMALL, other), forecasts, done=frozenset({1})) == []


def test_job_that_starts_at_once_is_left_alone() -> None:
    first_in_line = make_snapshot([SMALL], [make_node("n01")], config=LASTING)
    in_the_hole = blocked(replace(SMALL, time_limit_s=0.75 * HOUR_S))
    forecasts = Forecasts(by_job={1: run_time(60.0, 120.0, 300.0)})

    assert proposed(first_in_line, forecasts) == []
    assert proposed(in_the_hole, forecasts) == []


def test_job_that_would_wait_less_than_is_worth_a_change_is_left_alone() -> None:
    forecasts = Forecasts(by_job={1: HOUR_OR_TWO})

    found = [
        soft_limits(proposed(blocked(SMALL), forecasts, settings=PlanningSettings(min_saving_s=hours * HOUR_S)))
        for hours in (3.0, 4.0)
    ]

    # It may wait for 3.25 h.
    assert found == [{1: 2 * HOUR_S}, {}]


def test_job_whose_soft_limit_fits_no_hole_is_left_alone() -> None:
    forecasts = Forecasts(by_job={1: HOUR_OR_TWO})

    # Another soft limit would let it be planned earlier, at the cost of those that start before it now.
    assert proposed(blocked(SMALL, hours=1.9), forecasts) == []
    assert proposed(blocked(replace(SMALL, gang=make_gang(8))), forecasts) == []


def test_wait_is_by_the_ends_of_running_jobs_where_those_suffice() -> None:
    running = [make_job(90, gpus=8, running_on=["n01"], started_ago_s=0.0, time_limit_s=5 * HOUR_S)]
    gang = make_job(80, gang=make_gang(8), priority=5000, time_limit_s=2 * HOUR_S)
    nodes = [make_node("n01", used=8), make_node("n02", used=4)]
    snapshot = make_snapshot([*running, gang, SMALL], nodes, config=LASTING)

    (change,) = proposed(snapshot, Forecasts(by_job={1: HOUR_OR_TWO}))

    assert change.expected.saved_s_high == 5 * HOUR_S


def test_jobs_of_another_type_do_not_count_as_work_before_a_job() -> None:
    def asking(job_id: int, gpu_type: str | None, priority: int) -> Job:
        return make_job(job_id, gang=make_gang(8, gpu_type=gpu_type), time_limit_s=10 * HOUR_S, priority=priority)

    running = [
        make_job(90, gang=make_gang(8, gpu_type="a100"), running_on=["n01"], started_ago_s=0.0, time_limit_s=HOUR_S),
        make_job(91, gang=make_gang(8, gpu_type="h100"), running_on=["n02"], started_ago_s=0.0, time_limit_s=HOUR_S),
    ]
    waiting = [asking(1, "a100", 3000), asking(2, "h100", 2000), asking(3, "h100", 1000), asking(4, None, 900)]
    nodes = [make_node("n01", used=8, gpu_type="a100"), make_node("n02", used=8, gpu_type="h100")]
    snapshot = make_snapshot([*running, *waiting], nodes, config=LASTING)

    queue = queue_table(snapshot, node_table(snapshot), 200)

    waits_s = soft_limit._waits_s(queue, releases(snapshot, queue), np.arange(4))

    # The third waits for an hour and one job of its type, the last for the two nodes' hours and the three before it.
    assert waits_s.tolist() == [HOUR_S, HOUR_S, 11 * HOUR_S, 16 * HOUR_S]


def test_best_placed_jobs_come_first_where_only_so_many_may_change() -> None:
    waiting = [make_job(number, gpus=4, time_limit_s=10 * HOUR_S, priority=100 * number) for number in (1, 2, 3)]
    forecasts = Forecasts(by_job=dict.fromkeys((1, 2, 3), HOUR_OR_TWO))

    changes = proposed(blocked(*waiting), forecasts, limits=Limits(max_changes=2))

    assert [change.job_id for change in changes] == [3, 2]


def test_plan_without_forecasts_proposes_no_soft_limit() -> None:
    assert soft_limits(plan(Case(snapshot=blocked(SMALL)))) == {}
    assert soft_limits(plan(Case(snapshot=blocked(SMALL), forecasts=Forecasts(by_job={1: HOUR_OR_TWO})))) == {
        1: 2 * HOUR_S
    }


def test_plan_proposes_none_where_slurm_would_shorten_the_job() -> None:
    hard = replace(blocked(SMALL), config=make_config())

    found = plan(Case(snapshot=hard, forecasts=Forecasts(by_job={1: HOUR_OR_TWO})))

    assert soft_limits(found) == {}


def test_job_is_changed_once_a_cycle_and_moves_come_first() -> None:
    # Short work of a forecast far below its limit stands behind long work: it can be lifted or get a soft limit.
    long_one = make_job(2, gpus=16, time_limit_s=4 * DAY_S, priority=1100)
    forecasts = Forecasts(by_job={1: HOUR_OR_TWO})
    waiting = blocked(replace(SMALL, priority=1000), long_one)

    first, second = (
        plan(Case(snapshot=waiting, limits=limits, forecasts=forecasts)).recommendations
        for limits in (Limits(), Limits(nice_min=0))
    )

    assert [type(change.action) for change in first if change.job_id == 1] == [SetNice]
    assert [type(change.action) for change in second if change.job_id == 1] == [SetTimeMin]


def test_accepted_soft_limit_is_not_proposed_again_once_applied() -> None:
    class Knows:
        def forecasts(self, snapshot: Snapshot) -> Forecasts:
            return Forecasts(by_job={job.job_id: HOUR_OR_TWO for job in snapshot.jobs if job.job_id == 1})

    cycle = Cycle(forecaster=Knows())
    record = cycle.judge(blocked(SMALL))
    (change,) = (each for each in record.recommendations if each.job_id == 1)
    after = replace(record.snapshot, jobs=tuple(
        change.action.applied_to(job) if job.job_id == 1 else job for job in record.snapshot.jobs
    ))  # fmt: skip

    assert change.action == SetTimeMin(job_id=1, before=None, after=2 * HOUR_S)
    assert soft_limits(Plan(recommendations=cycle.judge(after).judged)) == {}


@pytest.mark.no_cover
@drawn(max_examples=examples(100), deadline=None)
@given(contended(), st.data())
def test_every_soft_limit_lies_below_its_limit_above_nine_in_ten_run_times_and_passes_the_guard(
    drawn: Snapshot, data: st.DataObject
) -> None:
    times = st.lists(st.floats(1.0, 2 * DAY_S), min_size=3, max_size=3).map(sorted)
    by_job = {job.job_id: run_time(*data.draw(times)) for job in drawn.jobs if job.is_pending}

    class Knows:
        def forecasts(self, _snapshot: Snapshot) -> Forecasts:
            return Forecasts(by_job=by_job)

    cycle = Cycle(planning=PlanningSettings(min_saving_s=1.0), forecaster=Knows())
    record = cycle.judge(replace(drawn, config=LASTING))

    jobs = [change.job_id for change in record.judged]
    assert len(jobs) == len(set(jobs))
    for change in record.judged:
        if isinstance(change.action, SetTimeMin):
            limit_s, high_s = change.evidence["time_limit_s"], change.evidence["run_time_s_high"]
            assert isinstance(limit_s, float) and isinstance(high_s, float) and change.action.after is not None
            assert change.refused_by is None
            assert change.action.after % MINUTE_S == 0
            assert high_s <= change.action.after + 0.001 <= 0.75 * limit_s + 0.001
            assert 0.0 <= change.expected.saved_s_low < change.expected.saved_s_high < np.inf
