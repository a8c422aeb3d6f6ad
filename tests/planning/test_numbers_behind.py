"""The numbers behind a recommendation or a check, and the bounds at their exact value."""

import pytest

from advisor.cycle import Cycle
from advisor.domain.forecast import Forecasts
from advisor.domain.topology import LocalityTier
from advisor.domain.waits import Wait
from advisor.planning.ordering import LongWorkAhead
from advisor.planning.site_checks import site_checks
from advisor.planning.tuning import Tuner, tuning_of
from advisor.settings import Limits, PlanningSettings
from tests.builders import HOUR_S, TAKEN_AT, make_job, make_node, make_snapshot
from tests.planning.test_ordering import busy, shorts
from tests.planning.test_site_checks import FULL
from tests.planning.test_soft_limit import LASTING, SMALL, proposed, run_time


def test_facts_of_a_step_back_are_gpu_hours_and_the_jobs_that_pass() -> None:
    long = make_job(1, gpus=16, priority=1000, time_limit_s=40 * HOUR_S)

    (change,) = Cycle().judge(busy(long, *shorts(2))).recommendations

    assert isinstance(change.facts, LongWorkAhead)
    facts = change.facts
    # A fifth of the limits is the run time that is expected by rule.
    assert (facts.gpu_hours_low, facts.gpu_hours, facts.gpu_hours_high) == (128.0, 128.0, 640.0)
    assert facts.gpu_hours_passing == pytest.approx(0.8)
    assert (facts.jobs_passing, facts.passing, facts.forecast_jobs) == (2, (10, 11), 0)
    assert (facts.priority, facts.priority - facts.priority_after) == (1000, change.action.after)
    assert facts.queueing_delay_s == HOUR_S
    assert (facts.used_limit_ratio_low, change.expected.jobs_helped) == (0.2, 2)


def test_usable_lever_is_called_usable_and_costs_nothing() -> None:
    levers = [check for check in site_checks(FULL, Limits()) if check.name.startswith("lever ")]

    assert {(check.text, check.cost) for check in levers} == {("usable", "")}


def test_job_that_starts_at_once_gets_no_soft_limit_even_if_any_saving_is_worth_it() -> None:
    first_in_line = make_snapshot([SMALL], [make_node("n01")], config=LASTING)
    forecasts = Forecasts(by_job={1: run_time(60.0, 120.0, 300.0)})

    assert proposed(first_in_line, forecasts, settings=PlanningSettings(min_saving_s=0.0)) == []


@pytest.mark.parametrize(("memories", "gangs"), [(5.9, 1), (6.1, 0)])
def test_tuner_remembers_waits_of_six_memories(memories: float, gangs: int) -> None:
    tuning = tuning_of(PlanningSettings(timer_memory_s=1000.0))
    ended = TAKEN_AT - 1000.0 * memories
    wait = Wait(gpus=8, tier=LocalityTier.NODE, waited_s=60.0, got=True, ended_time=ended)

    assert Tuner([wait], TAKEN_AT, tuning).seen(8, LocalityTier.NODE).gangs == gangs
