"""Which jobs step back, behind whom, and how far."""

from dataclasses import replace

import pytest

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import SetNice
from advisor.domain.gang import GpuScope
from advisor.domain.job import ArrayRecord, Job
from advisor.domain.mark import marked
from advisor.domain.plan import Kind
from advisor.domain.snapshot import Snapshot
from advisor.settings import Limits, PlanningSettings
from advisor.view.sentences import sentence
from tests.builders import (
    DAY_S,
    HOUR_S,
    make_config,
    make_gang,
    make_holders,
    make_job,
    make_node,
    make_partition,
    make_snapshot,
)

FULL = tuple(f"n0{number}" for number in range(1, 5))


def busy(*jobs: Job, hours: float = 10.0) -> Snapshot:
    """A cluster whose 32 GPUs are all in use for another `hours`."""
    running = [
        make_job(900 + number, gpus=8, running_on=[name], started_ago_s=0.0, time_limit_s=hours * HOUR_S)
        for number, name in enumerate(FULL)
    ]
    return make_snapshot([*jobs, *running])


def moved(record: CycleRecord) -> dict[int, int]:
    """Map the jobs that step back to their new nice."""
    return {
        change.job_id: change.action.after
        for change in record.recommendations
        if isinstance(change.action, SetNice) and change.kind is Kind.REORDER
    }


def shorts(count: int, *, first_priority: int = 900, step: int = 1) -> list[Job]:
    """Return `count` jobs of 2 GPUs and one hour, each of a priority lower by `step` than the one before."""
    return [
        make_job(10 + number, gpus=2, priority=first_priority - step * number, time_limit_s=HOUR_S)
        for number in range(count)
    ]


def test_long_job_steps_just_behind_the_short_ones() -> None:
    snapshot = busy(make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S), *shorts(6))

    record = Cycle().judge(snapshot)

    # The last short job has priority 895 and nothing stands below it: 50 points under it is 845, 843 with the mark.
    assert moved(record) == {1: 157}


def test_saving_is_the_gpu_time_passed_over_the_gpus_of_the_pool() -> None:
    snapshot = busy(make_job(1, gpus=16, priority=1000, time_limit_s=40 * HOUR_S), *shorts(2))

    change = Cycle().judge(snapshot).recommendations[0]

    # Each of two jobs gains 16 x 40 h / 32 GPUs = 20 h; the long one loses 2 x 2 GPU-hours / 32 = 0.125 h,
    # of which, as of all limits, a fifth is expected to be used.
    assert change.expected.saved_s_high == pytest.approx((2 * 20 - 0.125 / 5) * HOUR_S)
    assert change.expected.saved_s_low == pytest.approx(0.2 * (2 * 20 - 0.125) * HOUR_S)
    assert change.expected.jobs_helped == 2


def test_published_bound_is_the_lease_and_the_longest_limit_let_ahead() -> None:
    snapshot = busy(make_job(1, gpus=16, priority=1000, time_limit_s=40 * HOUR_S), *shorts(2))

    change = Cycle().judge(snapshot).recommendations[0]

    assert change.revert_after_s == 600.0  # 0.125 h of others' work is less than the shortest lease
    assert change.expected.added_delay_max_s == 600.0 + HOUR_S


def test_short_job_ahead_of_long_ones_stays() -> None:
    long = make_job(1, gpus=32, priority=100, time_limit_s=2 * DAY_S)

    assert moved(Cycle().judge(busy(long, *shorts(6)))) == {}


def test_job_that_waited_long_enough_is_not_passed() -> None:
    old = make_job(1, gpus=8, priority=1000, time_limit_s=4 * HOUR_S, submitted_ago_s=47 * HOUR_S)
    new = make_job(1, gpus=8, priority=1000, time_limit_s=4 * HOUR_S, submitted_ago_s=HOUR_S)
    # Two GPUs for nearly as long: worth passing a new job, not one that weighs five times as much.
    behind = [make_job(20 + n, gpus=4, priority=900 - n, time_limit_s=3 * HOUR_S) for n in range(2)]

    assert moved(Cycle().judge(busy(new, *behind))) == {1: 157}
    assert moved(Cycle().judge(busy(old, *behind))) == {}


def test_job_that_waited_longer_than_the_limit_is_never_delayed() -> None:
    ancient = make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S, submitted_ago_s=49 * HOUR_S)

    assert moved(Cycle().judge(busy(ancient, *shorts(6)))) == {}


def test_long_work_is_not_let_ahead_beyond_the_bound_on_added_delay() -> None:
    snapshot = busy(
        make_job(1, gpus=32, priority=1000, time_limit_s=20 * DAY_S),
        make_job(2, gpus=2, priority=900, time_limit_s=7 * HOUR_S),
    )

    assert moved(Cycle().judge(snapshot)) == {}
    assert moved(Cycle(limits=Limits(max_added_delay_s=8 * HOUR_S)).judge(snapshot)) == {1: 157}


def test_nice_beyond_the_bound_is_not_proposed() -> None:
    snapshot = busy(make_job(1, gpus=32, priority=50_000, time_limit_s=2 * DAY_S), *shorts(6))

    assert moved(Cycle().judge(snapshot)) == {}


@pytest.mark.parametrize("nice", [1, 10, 10_000])
def test_own_nice_neither_exempts_a_job_nor_helps_it(nice: int) -> None:
    snapshot = busy(make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S, nice=nice), *shorts(6))

    # The same step as without a nice, counted from the user's own value, up to the mark.
    assert moved(Cycle().judge(snapshot)) == {1: marked(nice + 155)}


def test_nice_that_could_not_be_restored_is_left_alone() -> None:
    snapshot = busy(make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S, nice=-10), *shorts(6))

    assert moved(Cycle().judge(snapshot)) == {}


def test_saving_below_the_least_worthwhile_is_not_proposed() -> None:
    snapshot = busy(make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S), *shorts(6))

    assert moved(Cycle(planning=PlanningSettings(min_saving_s=30 * DAY_S)).judge(snapshot)) == {}


def test_jobs_of_another_gpu_type_do_not_pass() -> None:
    nodes = [make_node("n01", used=8, gpu_type="a100"), make_node("n02", used=8, gpu_type="v100")]
    long = make_job(1, gang=make_gang(8, gpu_type="a100"), priority=1000, time_limit_s=2 * DAY_S)
    others = [
        make_job(10 + n, gang=make_gang(2, gpu_type="v100"), priority=900 - n, time_limit_s=HOUR_S) for n in range(4)
    ]

    assert moved(Cycle().judge(make_snapshot([long, *others], nodes))) == {}


def test_jobs_of_any_type_pass() -> None:
    nodes = [make_node("n01", used=8, gpu_type="a100"), make_node("n02", used=8, gpu_type="v100")]
    long = make_job(1, gang=make_gang(8, gpu_type="a100"), priority=1000, time_limit_s=2 * DAY_S)
    others = [make_job(10 + n, gpus=2, priority=900 - n, time_limit_s=HOUR_S) for n in range(4)]

    assert moved(Cycle().judge(make_snapshot([long, *others, *make_holders(nodes)], nodes))) == {1: 157}


def test_job_that_starts_now_where_it_stands_is_left_there() -> None:
    snapshot = make_snapshot([make_job(1, gpus=16, priority=1000, time_limit_s=2 * DAY_S), *shorts(10)])

    assert moved(Cycle().judge(snapshot)) == {}


def test_jobs_that_backfill_starts_anyway_do_not_count() -> None:
    nodes = [make_node(name, used=6) for name in FULL]
    long = make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S)

    assert moved(Cycle().judge(make_snapshot([long, *shorts(4)], nodes))) == {}


def test_array_counts_with_all_its_waiting_tasks() -> None:
    array = make_job(
        1, gpus=4, priority=1000, time_limit_s=4 * HOUR_S, array=ArrayRecord(array_job_id=1, waiting="0-99")
    )
    behind = make_job(2, gpus=8, priority=900, time_limit_s=4 * HOUR_S)

    change = Cycle().judge(busy(array, behind)).recommendations[0]

    assert change.job_id == 1
    assert change.evidence["gpu_hours_high"] == 1600


def test_unlimited_job_without_partition_limit_keeps_its_place() -> None:
    snapshot = busy(make_job(1, gpus=32, priority=1000, time_limit_s=None), *shorts(6))

    assert moved(Cycle().judge(snapshot)) == {}


def test_partition_limit_stands_in_for_a_missing_one() -> None:
    snapshot = busy(make_job(1, gpus=32, priority=1000, time_limit_s=None), *shorts(6))
    limited = make_snapshot(
        snapshot.jobs, snapshot.nodes, partitions=[make_partition(nodes=FULL, max_time_s=2 * DAY_S)]
    )

    assert moved(Cycle().judge(limited)) == {1: 157}


def test_no_more_changes_than_the_cap() -> None:
    long = [make_job(1 + n, gpus=32, priority=2000 - n, time_limit_s=2 * DAY_S) for n in range(5)]

    record = Cycle(limits=Limits(max_changes=2, max_added_delay_s=20 * DAY_S)).judge(busy(*long, *shorts(6)))

    assert len(record.recommendations) == 2


def test_tiers_of_priority_do_not_mix() -> None:
    snapshot = busy(
        make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S, partitions=("urgent",)),
        *shorts(6),
    )
    partitions = [make_partition(nodes=FULL), make_partition("urgent", nodes=FULL, priority_tier=10)]

    record = Cycle().judge(make_snapshot(snapshot.jobs, snapshot.nodes, partitions=partitions))

    assert moved(record) == {}


def test_without_multifactor_priority_nothing_is_reordered() -> None:
    snapshot = busy(make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S), *shorts(6))
    basic = make_snapshot(snapshot.jobs, snapshot.nodes, config=make_config(priority_type="priority/basic"))

    assert moved(Cycle().judge(basic)) == {}


def test_flat_priorities_leave_nice_no_room() -> None:
    equal = [make_job(10 + n, gpus=2, priority=1, time_limit_s=HOUR_S, submitted_ago_s=600.0) for n in range(6)]

    assert moved(Cycle().judge(busy(make_job(1, gpus=32, priority=1, time_limit_s=2 * DAY_S), *equal))) == {}


def test_text_names_the_jobs_let_ahead() -> None:
    few = busy(make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S), *shorts(2))
    many = busy(make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S), *shorts(6))

    assert "(10, 11)" in sentence(Cycle().judge(few).recommendations[0])
    assert "(10, 11, 12 and 3 more)" in sentence(Cycle().judge(many).recommendations[0])


def test_job_is_put_half_way_to_the_next_lower_one() -> None:
    after = make_job(30, gpus=2, priority=875, time_limit_s=7 * HOUR_S)
    snapshot = busy(make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S), *shorts(6), after)

    # Between 895 and 875, at 883 for the mark, since the job at 875 is too long to be let ahead.
    assert moved(Cycle().judge(snapshot)) == {1: 117}


def test_nobody_steps_behind_a_job_that_may_run_for_ever() -> None:
    endless = make_job(30, gpus=2, priority=880, time_limit_s=None)
    snapshot = busy(make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S), *shorts(6, step=20), endless)

    # Behind job 10 of priority 900, and before the two at 880.
    assert moved(Cycle().judge(snapshot)) == {1: 1000 - 883}


def test_nobody_steps_behind_jobs_that_the_plan_does_not_see() -> None:
    long = make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S)

    record = Cycle(planning=PlanningSettings(depth=4)).judge(busy(long, *shorts(6, step=20)))

    # Jobs 10, 11 and 12 are seen; from the priority of the last of them on anything may stand.
    assert moved(record) == {1: 1000 - 863}


def test_mark_puts_no_job_behind_one_that_the_place_alone_would_not() -> None:
    # Every place of them but the last has the next job less than nine points below.
    snapshot = busy(make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S), *shorts(6, step=2))
    too_long = make_job(30, gpus=2, priority=889, time_limit_s=7 * HOUR_S)

    assert moved(Cycle().judge(snapshot)) == {1: 1000 - 833}
    assert moved(Cycle().judge(replace(snapshot, jobs=(*snapshot.jobs, too_long)))) == {1: 1000 - 893}


def test_long_job_that_backfill_could_start_still_counts_for_the_bound() -> None:
    # Four GPUs are idle, the long gang cannot start for 20 h, and a 4-GPU job of 10 h fits before that.
    nodes = [make_node(name, used=8 if name != "n04" else 4) for name in FULL]
    running = [
        make_job(900 + number, gpus=8 if name != "n04" else 4, running_on=[name], started_ago_s=0.0,
                 time_limit_s=20 * HOUR_S)
        for number, name in enumerate(FULL)
    ]  # fmt: skip
    gang = make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S)
    fits = make_job(2, gpus=4, priority=950, time_limit_s=10 * HOUR_S, nice=-1)
    short = make_job(3, gpus=8, priority=900, time_limit_s=HOUR_S)

    assert moved(Cycle().judge(make_snapshot([gang, fits, short, *running], nodes))) == {}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(make_job(50, gang=make_gang(4, scope=GpuScope.SOCKET), time_limit_s=7 * DAY_S), id="per socket"),
        pytest.param(make_job(50, gang=make_gang(0, gpus_known=False), time_limit_s=30 * DAY_S), id="GPUs unknown"),
        pytest.param(make_job(50, gpus=2, dependency="afterok:3", time_limit_s=30 * DAY_S), id="dependent"),
        pytest.param(make_job(50, gpus=2, dependency="afterok:3", time_limit_s=None), id="dependent, no limit"),
    ],
)
@pytest.mark.parametrize(("priority", "passed"), [(950, True), (1500, False), (200, False)])
def test_long_job_outside_the_line_is_not_let_ahead(other: Job, priority: int, passed: bool) -> None:
    long = make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S)
    far = [
        make_job(60 + n, priority=n + 1, gang=make_gang(1, scope=GpuScope.SOCKET), time_limit_s=60.0) for n in range(7)
    ]

    found = moved(Cycle().judge(busy(long, *shorts(6), replace(other, priority=priority), *far)))

    assert found == ({} if passed else {1: 157})
