"""Which GPUs a resize counts on: those of jobs that start, of other types, and of other resizes are not there twice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from advisor.cycle import Cycle
from advisor.domain.actions import Lever
from advisor.domain.forecast import JobForecast, Placement
from advisor.domain.gang import SwitchRequest
from advisor.domain.job import Job
from advisor.domain.node import GpuPool, Node
from advisor.domain.topology import LocalityTier
from advisor.planning.growth import GrowthStep, grown
from advisor.planning.sizing import Resizing
from advisor.settings import PlanningSettings
from tests.builders import HOUR_S, make_gang, make_job, make_node, make_snapshot, make_topology
from tests.planning.test_sizing import elastic, new_sizes
from tests.planning.test_with_forecasts import FixedForecaster, exactly, runs


def typed(job: Job, gpu_type: str | None) -> Job:
    """The job with a request for GPUs of one type."""
    return replace(job, gang=make_gang(job.gang.gpu_count or 0, gpu_type=gpu_type))


def two_types(*, a100: int = 8, h100: int = 8) -> list[Node]:
    """A node of each type, with GPUs idle of its eight."""
    return [
        make_node("n01", used=8 - a100, gpu_type="a100"),
        make_node("n02", used=8 - h100, gpu_type="h100"),
    ]


def sizes(jobs: Sequence[Job], nodes: Sequence[Node], **settings: float) -> dict[int, int]:
    cycle = Cycle(planning=PlanningSettings(**settings), levers=frozenset({Lever.GPU_COUNT}))  # type: ignore[arg-type]
    return new_sizes(cycle.judge(make_snapshot(jobs, nodes)))


def test_idle_gpus_that_one_job_shrinks_onto_are_not_there_for_the_next() -> None:
    running = make_job(9, gpus=6, running_on=["n01"], started_ago_s=0.0, time_limit_s=20 * HOUR_S)

    # Two GPUs are idle.
    assert sizes([elastic(1, 8), elastic(2, 8, job_id=2), running], [make_node("n01", used=6)]) == {1: 2}


@pytest.mark.parametrize(("hours", "after"), [(20.0, {2: 2}), (5.0, {})])
def test_blocked_job_waits_for_the_gpus_of_a_job_that_starts_before_it(hours: float, after: dict[int, int]) -> None:
    starting = make_job(1, gpus=8, time_limit_s=hours * HOUR_S)
    nodes = [make_node("n01"), make_node("n02", gpus=2)]

    # No job runs. The first takes 8 of 10 GPUs for a fifth of its limit; only if that is long, two GPUs are better.
    assert sizes([starting, elastic(1, 8, job_id=2), make_job(3, gpus=9)], nodes) == after


def test_first_of_several_releases_ends_the_wait() -> None:
    first = make_job(1, gpus=4, time_limit_s=5 * HOUR_S)
    running = make_job(9, gpus=4, running_on=["n01"], started_ago_s=0.0, time_limit_s=200 * HOUR_S)
    nodes = [make_node("n01", used=4), make_node("n02", gpus=2)]

    # The running job ends last although its release is known first: after an hour, four GPUs are there.
    assert sizes([first, elastic(1, 8, job_id=2), running], nodes) == {}
    assert sizes([replace(first, time_limit_s=50 * HOUR_S), elastic(1, 8, job_id=2), running], nodes) == {2: 2}


@pytest.mark.parametrize(("used", "after"), [(["n04"], {2: 8}), (["n02", "n04"], {})])
def test_job_that_waits_for_one_leaf_takes_its_gpus_when_a_leaf_is_free(used: list[str], after: dict[int, int]) -> None:
    request = SwitchRequest(count=1, max_wait_s=HOUR_S)
    head = make_job(1, gang=make_gang(16, switches=request), priority=2000)
    topology = make_topology({"leaf1": ("n01", "n02"), "leaf2": ("n03", "n04"), "leaf3": ("n05",)})
    names = [f"n0{number}" for number in range(1, 6)]
    nodes = [make_node(name, used=8 if name in used else 0) for name in names]

    # Until it starts, no other job grows onto the GPUs that it waits for.
    record = Cycle().judge(make_snapshot([head, elastic(2, 8, job_id=2)], nodes, topology=topology))

    assert new_sizes(record) == after


def test_job_grows_while_one_of_another_type_waits() -> None:
    waiting = typed(make_job(2, gpus=8, priority=2000), "h100")

    assert sizes([typed(elastic(2, 8), "a100"), waiting], two_types(h100=4)) == {1: 8}
    assert sizes([typed(elastic(2, 8), None), waiting], two_types(h100=4)) == {}


def test_job_does_not_grow_while_one_of_any_type_waits() -> None:
    waiting = make_job(2, gpus=16, priority=2000)

    assert sizes([typed(elastic(2, 8), "a100"), waiting], two_types()) == {}


def test_job_that_takes_the_last_gpus_of_its_type_does_not_wait_for_them() -> None:
    exact = typed(make_job(1, gpus=8, priority=2000), "a100")

    assert sizes([exact, elastic(2, 8, job_id=2)], two_types()) == {2: 8}


def test_job_of_any_type_takes_the_type_with_most() -> None:
    any_type, of_type = make_job(1, gpus=4, priority=2000), typed(elastic(2, 8, job_id=2), "a100")

    # It takes four of the eight h100, so that all a100 are left; of eight and five, it takes a100.
    assert sizes(
        [any_type, of_type], [make_node("n01", gpu_type="a100"), make_node("n02", gpus=12, gpu_type="h100")]
    ) == {2: 8}
    assert sizes([any_type, of_type], two_types(h100=5)) == {}


def test_equal_gains_go_to_the_lower_job_id_whatever_the_order_of_the_line() -> None:
    first, second = elastic(2, 8), replace(elastic(2, 8, job_id=2), priority=2000)

    # Four of twelve GPUs are left.
    assert sizes([first, second], [make_node("n01"), make_node("n02", used=4)]) == {1: 8}


def test_job_grows_step_by_step_as_far_as_each_step_adds_enough() -> None:
    nodes = [make_node("n01", gpus=16)]

    # From 2 GPUs to 4, 8 and 16: each adds 0.81, 0.75 and 0.70 of one GPU's speed a GPU.
    assert sizes([elastic(2, 16, gpus=2)], nodes) == {1: 16}
    assert sizes([elastic(2, 16, gpus=2)], nodes, min_marginal_ratio=0.72) == {1: 8}
    assert sizes([elastic(2, 16, gpus=2)], nodes, min_marginal_ratio=0.78) == {1: 4}


def test_step_that_adds_just_the_least_is_taken() -> None:
    # With an exponent of 1, each GPU adds the speed of one.
    assert sizes([elastic(2, 8)], [make_node("n01")], scaling_exponent=1.0, min_marginal_ratio=1.0) == {1: 8}


@pytest.mark.parametrize(("hours", "after"), [(10.0, {1: 8}), (1.0, {})])
def test_growth_that_saves_too_little_is_not_proposed(hours: float, after: dict[int, int]) -> None:
    short = replace(elastic(2, 8), time_limit_s=hours * HOUR_S)

    # A fifth of an hour at four GPUs takes 5.6 minutes less at eight; ten are the least.
    assert sizes([short], [make_node("n01")]) == after


@pytest.mark.parametrize(("least_s", "after"), [(HOUR_S, {1: 2}), (HOUR_S + 1.0, {})])
def test_smaller_size_that_saves_just_the_least_is_proposed(least_s: float, after: dict[int, int]) -> None:
    running = make_job(9, gpus=6, running_on=["n01"], started_ago_s=0.0, time_limit_s=4 * HOUR_S)
    snapshot = make_snapshot([elastic(1, 8), running], [make_node("n01", used=6)])
    # It would wait for 4 h, and on half of the GPUs it runs for 6 h in place of 3 h.
    known = {1: JobForecast(run_time=runs(3.0)), 9: JobForecast(run_time=runs(4.0))}
    settings = PlanningSettings(min_saving_s=least_s, scaling_exponent=1.0)

    assert new_sizes(Cycle(planning=settings, forecaster=FixedForecaster(by_job=known)).judge(snapshot)) == after


def facts_of(job: Job, forecasts: Mapping[int, JobForecast]) -> Resizing:
    (change,) = (
        Cycle(forecaster=FixedForecaster(by_job=forecasts))
        .judge(make_snapshot([job], [make_node("n01")]))
        .recommendations
    )
    assert isinstance(change.facts, Resizing)
    assert change.expected.added_delay_max_s == 0.0
    assert change.expected.jobs_helped == 1
    return change.facts


def test_facts_name_the_rules_that_stand_in_for_forecasts() -> None:
    facts = facts_of(elastic(2, 8), {})

    assert (facts.gpus, facts.gpus_after, facts.expected_wait_s) == (4, 8, 0.0)
    assert (facts.scaling_exponent, facts.used_limit_ratio_low) == (0.9, 0.2)
    assert (facts.time_limit_s, facts.time_limit_after_s) == (10 * HOUR_S, 10 * HOUR_S)
    assert facts.stretch == pytest.approx(0.5**0.9)
    # A fifth of the limit is the run that is expected by rule.
    assert facts.expected_run_time_change_s == pytest.approx(-2 * HOUR_S * (1 - 0.5**0.9))


def test_facts_name_no_rule_where_run_time_and_speeds_are_forecast() -> None:
    speeds = {Placement(gpus=gpus, tier=LocalityTier.NODE): exactly(gpus / 4) for gpus in (4, 8)}

    facts = facts_of(elastic(2, 8), {1: JobForecast(run_time=runs(8), speed_by_placement=speeds)})

    assert (facts.scaling_exponent, facts.used_limit_ratio_low) == (None, None)
    assert facts.stretch == 0.5
    assert facts.expected_run_time_change_s == -4 * HOUR_S


def test_node_of_two_types_gives_each_type_its_own_idle_gpus() -> None:
    pools = (GpuPool(gpu_type="a100", total=8, used=4), GpuPool(gpu_type="h100", total=8, used=0))
    node = replace(make_node("n01"), gpus=pools)

    # Four a100 are idle, which the job takes; that eight h100 are idle helps it to no more.
    assert sizes([typed(elastic(2, 8), "a100")], [node]) == {}
    assert sizes([typed(elastic(2, 8), "h100")], [node]) == {1: 8}


def halving(*worth: float, most: int = 8) -> Callable[[int, int], GrowthStep | None]:
    """Return the steps of jobs that double, each step worth half of the one before."""
    return lambda place, size: GrowthStep(2 * size, worth[place] / size) if 2 * size <= most else None


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param(0, [1, 1], id="nothing is left"),
        pytest.param(1, [1, 2], id="the first step goes to the job that values it most"),
        pytest.param(3, [1, 4], id="and the second, for the half is still more"),
        pytest.param(4, [2, 4], id="the rest goes to the other"),
        pytest.param(6, [4, 4], id="a step that is not left for does not stop the others"),
    ],
)
def test_each_step_goes_to_the_job_that_values_it_most(gpus: int, expected: list[int]) -> None:
    assert grown([1, 1], gpus, halving(1.0, 3.0)) == expected


def test_ties_go_to_the_first() -> None:
    assert grown([1, 1], 1, halving(1.0, 1.0)) == [2, 1]


def test_job_whose_step_cannot_be_taken_grows_no_further() -> None:
    assert grown([1, 1], 20, halving(1.0, 3.0), lambda place, _gpus: place == 0) == [8, 1]
