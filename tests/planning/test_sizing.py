"""Which elastic jobs change size, to what, and in which form."""

from dataclasses import replace

import pytest

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Reason, SetGpus, SetNice
from advisor.domain.gang import GangRequest, GpuCount, GpuScope
from advisor.domain.job import ArrayRecord, Job
from advisor.domain.lease import LeaseState, intended
from advisor.domain.memory import Memory
from advisor.domain.snapshot import Snapshot
from advisor.planning.sizing import options, resized
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
)


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


def test_gain_below_the_least_marginal_speed_is_not_taken() -> None:
    snapshot = make_snapshot([elastic(2, 8)], [make_node("n01")])

    assert new_sizes(Cycle(planning=PlanningSettings(min_marginal_ratio=0.9)).judge(snapshot)) == {}


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
