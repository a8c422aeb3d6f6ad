"""Which elastic jobs change size, to what, in which form, and which GPUs a resize counts on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Lever, Reason, SetGpus, SetNice
from advisor.domain.forecast import JobForecast, Placement
from advisor.domain.gang import GangRequest, GpuCount, GpuScope, SwitchRequest
from advisor.domain.job import ArrayRecord, Job
from advisor.domain.lease import LeaseState, intended
from advisor.domain.memory import Memory
from advisor.domain.node import GpuPool, Node
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.planning.growth import GrowthStep, grown
from advisor.planning.sizing import Resizing, options, resized
from advisor.settings import Limits, PlanningSettings
from advisor.view.sentences import sentence
from tests.builders import (
    DAY_S,
    HOUR_S,
    TAKEN_AT,
    gpu_counts,
    make_config,
    make_gang,
    make_hints,
    make_job,
    make_node,
    make_partition,
    make_snapshot,
    make_topology,
)
from tests.planning.test_with_forecasts import FixedForecaster, exactly, runs


def elastic(low: int, high: int, *, gpus: int = 4, job_id: int = 1) -> Job:
    """A job that asks `gpus` and declares a range."""
    return make_job(job_id, gpus=gpus, time_limit_s=10 * HOUR_S, hints=make_hints(gpus=(low, high)))


def new_sizes(record: CycleRecord) -> dict[int, int]:
    """Map resized jobs to the GPUs of the form they asked in."""
    return {
        change.job_id: change.action.after.count
        for change in record.recommendations
        if isinstance(change.action, SetGpus)
    }


def test_job_about_to_start_grows_onto_gpus_nobody_waits_for() -> None:
    snapshot = make_snapshot([elastic(2, 8)], [make_node("n01")])

    record = Cycle().judge(snapshot)

    assert new_sizes(record) == {1: 8}
    assert record.recommendations[0].reason is Reason.IDLE_GPUS_TO_GROW
    # 10 h at 4 GPUs become 10 h x (4/8)^0.9 at 8.
    assert record.recommendations[0].expected.saved_s_high == pytest.approx(10 * HOUR_S * (1 - 0.5**0.9))


def test_growth_stops_at_the_idle_gpus_of_the_best_tier() -> None:
    in_pieces = make_snapshot([elastic(2, 16)], [make_node("n01", used=4), make_node("n02", used=2)])
    on_one_node = make_snapshot([elastic(2, 16)], [make_node("n01", used=6), make_node("n02")])

    # Ten GPUs are idle either way, and the job holds four: eight would be spread over both nodes, or not.
    assert new_sizes(Cycle().judge(in_pieces)) == {}
    assert new_sizes(Cycle().judge(on_one_node)) == {1: 8}


def test_spare_gpus_go_to_the_larger_marginal_gain() -> None:
    jobs = [elastic(1, 8, gpus=4), elastic(1, 8, gpus=2, job_id=2)]
    snapshot = make_snapshot(jobs, [make_node("n01"), make_node("n02", gpus=2)])

    # Four GPUs are left, for either of both: the step from 2 to 4 adds 0.81 a GPU, that from 4 to 8 only 0.75.
    # Without lifts, which would move the smaller one first.
    assert new_sizes(Cycle(limits=Limits(nice_min=0)).judge(snapshot)) == {2: 4}


def test_nobody_grows_while_a_job_waits_for_the_same_gpus() -> None:
    blocked = make_job(2, gpus=16, time_limit_s=DAY_S, priority=500)
    snapshot = make_snapshot([elastic(2, 8), blocked], [make_node("n01"), make_node("n02", used=8)])

    assert 1 not in new_sizes(Cycle().judge(snapshot))


def blocked_cluster(job: Job, hours: float = 20.0) -> list[Job]:
    """The job, and one that holds 6 of the node's 8 GPUs for `hours`."""
    return [job, make_job(9, gpus=6, running_on=["n01"], started_ago_s=0.0, time_limit_s=hours * HOUR_S)]


def test_blocked_job_shrinks_to_the_largest_size_that_starts_now() -> None:
    snapshot = make_snapshot(blocked_cluster(elastic(1, 8)), [make_node("n01", used=6)])

    record = Cycle().judge(snapshot)

    assert new_sizes(record) == {1: 2}
    assert record.recommendations[0].reason is Reason.SMALLER_STARTS_SOONER
    # At its full limit it starts 20 h sooner and runs 10 h x (2^0.9 - 1) longer.
    saved_s = (20 - 10 * (2**0.9 - 1)) * HOUR_S
    assert record.recommendations[0].expected.saved_s_high == pytest.approx(saved_s)
    assert record.recommendations[0].expected.saved_s_low == pytest.approx(saved_s * 0.2)
    # On half of the GPUs it has twice the limit.
    (action,) = (change.action for change in record.recommendations)
    assert isinstance(action, SetGpus)
    assert (action.before.time_limit_s, action.after.time_limit_s) == (10 * HOUR_S, 20 * HOUR_S)
    assert "Its time limit becomes 20.0 h" in sentence(record.recommendations[0])


def test_lifted_job_shrinks_and_grows_as_any_other() -> None:
    lift = intended(SetNice(job_id=1, before=0, after=-500), TAKEN_AT - 1.0, after_s=DAY_S)
    memory = Memory(leases=(replace(lift, state=LeaseState.OUT),))
    job = replace(elastic(1, 8), nice=-500)
    blocked = make_snapshot(blocked_cluster(job), [make_node("n01", used=6)])
    alone = make_snapshot([job], [make_node("n01")])

    assert new_sizes(Cycle().judge(blocked, memory)) == {1: 2}
    assert new_sizes(Cycle().judge(alone, memory)) == {1: 8}


def test_job_without_a_limit_of_its_own_shrinks_as_far_as_it_pays() -> None:
    job = replace(elastic(1, 8, gpus=8), time_limit_s=None)
    snapshot = make_snapshot(
        blocked_cluster(job, hours=200),
        [make_node("n01", used=6)],
        partitions=[make_partition(nodes=["n01"], max_time_s=DAY_S)],
    )

    record = Cycle().judge(snapshot)

    assert new_sizes(record) == {1: 2}
    assert "It has no time limit" in sentence(record.recommendations[0])


@pytest.mark.parametrize(("ratio", "sizes"), [(4.0, {1: 2}), (3.99, {}), (1.0, {})])
def test_job_does_not_shrink_so_far_that_its_limit_would_rise_beyond_the_ratio(
    ratio: float, sizes: dict[int, int]
) -> None:
    # A quarter of the GPUs has four times the limit.
    snapshot = make_snapshot(blocked_cluster(elastic(1, 8, gpus=8), hours=200), [make_node("n01", used=6)])

    assert new_sizes(Cycle(limits=Limits(max_limit_ratio=ratio)).judge(snapshot)) == sizes


@pytest.mark.parametrize(("longest_min", "sizes"), [(1200, {1: 2}), (1199, {})])
def test_job_does_not_shrink_if_its_partition_does_not_admit_the_limit(longest_min: int, sizes: dict[int, int]) -> None:
    partitions = [make_partition(nodes=["n01"], max_time_s=longest_min * 60.0)]
    snapshot = make_snapshot(blocked_cluster(elastic(1, 8)), [make_node("n01", used=6)], partitions=partitions)

    assert new_sizes(Cycle().judge(snapshot)) == sizes


ALONE, ONE_NODE, TWO_IDLE = elastic(2, 8), [make_node("n01")], [make_node("n01", used=6)]
AHEAD = make_job(2, gpus=8, priority=2000, time_limit_s=DAY_S)
SOCKETS = make_job(2, gang=make_gang(4, scope=GpuScope.SOCKET))


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(make_snapshot(blocked_cluster(elastic(1, 8), hours=5), TWO_IDLE), id="waiting costs less"),
        pytest.param(make_snapshot([elastic(1, 8)], TWO_IDLE), id="wait without known end"),
        pytest.param(make_snapshot([replace(ALONE, time_limit_s=None)], ONE_NODE), id="no limit"),
        pytest.param(make_snapshot([ALONE], ONE_NODE, config=make_config(scheduler_type="")), id="no configuration"),
        # Slurm would not start it: it would delay the one ahead.
        pytest.param(make_snapshot([AHEAD, *blocked_cluster(elastic(1, 8))], TWO_IDLE), id="behind one that waits"),
        pytest.param(
            make_snapshot([replace(ALONE, gang=replace(ALONE.gang, features="h100"))], ONE_NODE), id="no such features"
        ),
        pytest.param(make_snapshot([ALONE, SOCKETS], ONE_NODE), id="a job of unknown size waits"),
        pytest.param(
            make_snapshot([replace(ALONE, array=ArrayRecord(array_job_id=1, waiting="0-9"))], ONE_NODE), id="array"
        ),
    ],
)
def test_job_keeps_its_size(snapshot: Snapshot) -> None:
    assert new_sizes(Cycle().judge(snapshot)) == {}


def test_sizes_are_the_ends_and_the_powers_of_two_between() -> None:
    assert list(options(elastic(3, 12))) == [3, 4, 8, 12]


def test_job_with_one_task_per_gpu_is_sized_by_its_tasks_not_by_us() -> None:
    job = replace(elastic(2, 8), gang=make_gang(4, tasks=4))

    assert options(job) == {}


def test_job_of_one_task_with_one_gpu_is_sized() -> None:
    job = replace(elastic(1, 4, gpus=1), gang=make_gang(1, tasks=1))

    assert list(options(job)) == [1, 2, 4]


@pytest.mark.parametrize(
    ("gang", "gpus", "after"),
    [
        pytest.param(make_gang(4), 8, (GpuCount(count=8),), id="total"),
        pytest.param(make_gang(4, gpu_type="a100"), 8, (GpuCount(gpu_type="a100", count=8),), id="typed total"),
        pytest.param(
            make_gang(4, scope=GpuScope.NODE, nodes_min=2, nodes_max=2), 16, (GpuCount(count=8),), id="per node"
        ),
        pytest.param(make_gang(4, scope=GpuScope.NODE, nodes_min=2, nodes_max=2), 6, (GpuCount(count=3),), id="odd"),
        pytest.param(make_gang(4, scope=GpuScope.NODE, nodes_min=2, nodes_max=2), 7, None, id="indivisible"),
        pytest.param(make_gang(4, scope=GpuScope.NODE, nodes_min=1, nodes_max=4), 8, None, id="open node count"),
        pytest.param(make_gang(1, scope=GpuScope.TASK, tasks=4), 8, None, id="per task"),
        pytest.param(make_gang(1, scope=GpuScope.SOCKET), 8, None, id="per socket"),
        pytest.param(make_gang(4, nodes_max=4), 2, None, id="fewer GPUs than nodes"),
        pytest.param(make_gang(4, nodes_max=2), 2, (GpuCount(count=2),), id="as many GPUs as nodes"),
        pytest.param(make_gang(4, cpus_per_gpu=2), 8, None, id="CPUs per GPU"),
        pytest.param(make_gang(per_job=gpu_counts(8), per_node=gpu_counts(4)), 16, None, id="two forms"),
    ],
)
def test_size_changes_in_the_form_the_user_asked(
    gang: GangRequest, gpus: int, after: tuple[GpuCount, ...] | None
) -> None:
    action = resized(make_job(1, gang=gang), gpus)

    assert (None if action is None else action.after.gpus) == after


def test_nobody_grows_while_a_job_of_another_tier_waits_for_the_same_nodes() -> None:
    partitions = [make_partition("gpu", nodes=["n01"], priority_tier=10), make_partition("low", nodes=["n01"])]
    low = replace(elastic(2, 8), partitions=("low",))
    high = make_job(2, gpus=16, time_limit_s=DAY_S)

    assert new_sizes(Cycle().judge(make_snapshot([low, high], [make_node("n01")], partitions=partitions))) == {}
    assert new_sizes(Cycle().judge(make_snapshot([low], [make_node("n01")], partitions=partitions))) == {1: 8}


def test_nobody_grows_while_tasks_of_an_array_wait() -> None:
    def sizes(waiting: str) -> dict[int, int]:
        array = make_job(2, gpus=2, priority=500, array=ArrayRecord(array_job_id=2, waiting=waiting))
        return new_sizes(Cycle().judge(make_snapshot([elastic(2, 8), array], [make_node("n01"), make_node("n02")])))

    assert sizes("0-9") == {}
    assert sizes("9") == {1: 8}


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
