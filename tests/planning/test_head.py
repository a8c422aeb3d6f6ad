"""Which gangs stand near the head of the line: those that Slurm can start now or soon, planned over one picture."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import NodeRange, SetNodeRange, SetSwitches
from advisor.domain.forecast import Interval, JobForecast, Placement, RunTime
from advisor.domain.job import ArrayRecord, Job, Sensitivity
from advisor.domain.lease import Lease, LeaseState, intended
from advisor.domain.memory import Memory
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.planning import placement
from advisor.planning.case import Case
from advisor.planning.head import TurnInLine, turns
from advisor.planning.timetable import Timetable
from advisor.view.sentences import assumption, sentence
from tests.builders import (
    DAY_S,
    HOUR_S,
    TAKEN_AT,
    make_config,
    make_gang,
    make_hints,
    make_job,
    make_node,
    make_partition,
    make_snapshot,
)
from tests.golden import random_queues
from tests.planning.test_with_forecasts import FixedForecaster

RANGE = make_gang(8, nodes_min=1, nodes_max=4)


def timed(record: CycleRecord) -> list[int]:
    """Return the gangs that get a timer."""
    return [change.job_id for change in record.judged if isinstance(change.action, SetSwitches | SetNodeRange)]


def startable(record: CycleRecord) -> list[int]:
    """Return the gangs that are called startable now."""
    return [change.job_id for change in record.judged if "could start now" in sentence(change)]


def half_idle(jobs: Sequence[Job]) -> Snapshot:
    """Four nodes of which a job of a day holds the half."""
    running = [
        make_job(100 + row, gpus=4, running_on=[f"n0{row}"], started_ago_s=60.0, time_limit_s=DAY_S)
        for row in range(1, 5)
    ]
    return make_snapshot([*jobs, *running], [make_node(f"n0{row}", used=4) for row in range(1, 5)])


def test_gang_behind_57_jobs_is_not_called_startable_and_gets_no_timer() -> None:
    ahead = [make_job(number, gang=make_gang(8, nodes_max=1), priority=5000 - number) for number in range(10, 67)]
    gang = make_job(1, gang=RANGE, time_limit_s=2 * DAY_S)

    record = Cycle().judge(half_idle([gang, *ahead]))

    assert (startable(record), timed(record)) == ([], [])


def test_at_most_one_of_four_gangs_of_8_is_called_startable_with_9_gpus_idle() -> None:
    nodes = [make_node(f"n0{row}", used=5 if row < 4 else 8) for row in range(1, 5)]
    ahead = make_job(9, gang=make_gang(8, required_nodes=("n04",)), priority=5000, time_limit_s=None)
    gangs = [make_job(number, gang=RANGE, time_limit_s=2 * DAY_S) for number in range(1, 5)]

    record = Cycle().judge(make_snapshot([ahead, *gangs], nodes))

    assert startable(record) == timed(record) == [1]


def turns_of(snapshot: Snapshot) -> Mapping[int, TurnInLine]:
    """Map the gangs near the head to their turns."""
    case = Case(snapshot=snapshot)
    wanted = [row for row, gpus in enumerate(case.queue.gpus.tolist()) if gpus >= 2]
    found = turns(case.timetable, case.fitter, case.queue, case.freed, case.tested, wanted)
    return {case.queue.jobs[turn.row].job_id: turn for turn in found}


def now(snapshot: Snapshot) -> list[int]:
    """Return the gangs that can start now, in Slurm's order."""
    return [job_id for job_id, turn in turns_of(snapshot).items() if turn.claim is not None]


@pytest.mark.parametrize(
    ("parameters", "starts"),
    [
        ({}, []),
        ({"bf_job_part_count_reserve": "2"}, []),
        # Backfill holds no nodes for the second job.
        ({"bf_job_part_count_reserve": "1"}, [1]),
        ({"bf_min_age_reserve": "3600"}, [1]),
        ({"bf_min_age_reserve": "60"}, []),
        # Those ahead have priorities of 4989 and 4990.
        ({"bf_min_prio_reserve": "4991"}, [1]),
        ({"bf_min_prio_reserve": "4989"}, []),
    ],
)
def test_gang_starts_where_backfill_holds_no_nodes_for_those_ahead(
    parameters: Mapping[str, str], starts: list[int]
) -> None:
    first, second = (
        make_job(job_id, gang=make_gang(8, required_nodes=(name,)), priority=5000 - job_id, submitted_ago_s=600.0)
        for job_id, name in ((10, "n02"), (11, "n01"))
    )
    gang = make_job(1, gang=make_gang(4, nodes_max=1), time_limit_s=2 * DAY_S)
    running = [
        make_job(100 + row, gpus=gpus, running_on=[f"n0{row}"], started_ago_s=60.0, time_limit_s=HOUR_S)
        for row, gpus in ((1, 4), (2, 8))
    ]
    nodes = [make_node("n01", used=4), make_node("n02", used=8)]
    snapshot = make_snapshot([first, second, gang, *running], nodes)

    assert now(replace(snapshot, config=replace(snapshot.config, scheduler_parameters=parameters))) == starts


@settings(deadline=None)
@given(seed=st.integers(0, 100_000), reverse=st.booleans())
def test_gangs_that_can_start_now_never_claim_more_than_is_idle_on_any_node(seed: int, reverse: bool) -> None:
    drawn = random_queues.snapshot(np.random.default_rng(seed))
    case = Case(snapshot=replace(drawn, nodes=drawn.nodes[::-1]) if reverse else drawn)
    claimed = np.zeros_like(case.table.gpus_idle)

    for turn in turns(case.timetable, case.fitter, case.queue, case.freed, case.tested, range(len(case.queue.jobs))):
        if turn.claim is not None:
            np.add.at(claimed, turn.claim.rows, turn.claim.gpus)
            assert turn.claim.gpus.sum() == case.queue.gpus[turn.row]

    assert (claimed <= case.table.gpus_startable).all()


@settings(deadline=None)
@given(seed=st.integers(0, 100_000))
def test_job_that_starts_by_the_timetable_fits_on_what_is_idle(seed: int) -> None:
    case = Case(snapshot=random_queues.snapshot(np.random.default_rng(seed)))
    timetable, queue = case.timetable(), case.queue

    starting = [job for row, job in enumerate(queue.jobs) if timetable.starts_now(job, queue.longest_s(row))]

    assert all(case.fitter.tier_now(job.gang, job.partitions) is not None for job in starting)


def test_timetable_is_made_only_if_a_gang_could_be_near_the_head() -> None:
    made: list[int] = []

    def turns_of_gang(idle: int) -> list[int]:
        case = Case(snapshot=make_snapshot([make_job(2, gang=RANGE)], [make_node("n01", used=8 - idle)]))
        made.clear()

        def make_timetable() -> Timetable:
            made.append(idle)
            return case.timetable()

        return [turn.row for turn in turns(make_timetable, case.fitter, case.queue, case.freed, case.tested, [0])]

    assert turns_of_gang(4) == []
    assert made == []
    assert turns_of_gang(8) == [0]
    assert made == [8]


def test_gang_sees_only_what_the_jobs_ahead_leave() -> None:
    nodes = [make_node("n01"), make_node("n02", used=4), make_node("n03", used=4), make_node("n04", used=8)]
    first = make_job(1, gang=make_gang(8, nodes_max=1), priority=2000)
    gang = make_job(2, gang=RANGE, time_limit_s=2 * DAY_S)

    turn = turns_of(make_snapshot([first, gang], nodes))[2]

    assert turn.fitter.tier_now(gang.gang, gang.partitions) is LocalityTier.SPINE
    assert turns_of(make_snapshot([gang], nodes))[2].fitter.tier_now(gang.gang, gang.partitions) is LocalityTier.NODE


def test_each_task_of_an_array_ahead_takes_its_gpus() -> None:
    array = make_job(1, gpus=2, priority=2000, array=ArrayRecord(array_job_id=1, waiting="1-5"))
    gang = make_job(2, gang=RANGE)

    assert now(half_idle([array, gang])) == [1]
    assert now(half_idle([replace(array, array=None), gang])) == [1, 2]


def reserved(limit_s: float, **parameters: str) -> Snapshot:
    """A gang of four nodes waits until all are free in a day, and behind it a gang that fits on two of them now."""
    whole = make_job(1, gang=make_gang(32, nodes_max=4), priority=2000)
    snapshot = half_idle([whole, make_job(2, gang=RANGE, time_limit_s=limit_s)])
    return replace(snapshot, config=make_config(scheduler_parameters=parameters))


@pytest.mark.parametrize(
    ("snapshot", "startable_now"),
    [
        (reserved(6 * HOUR_S), [2]),
        (reserved(2 * DAY_S), []),
        (reserved(2 * DAY_S, bf_window="720"), [2]),
    ],
    ids=["ends before the reservation", "would delay it", "no reservation beyond the window"],
)
def test_gang_keeps_off_what_is_reserved_for_a_job_ahead(snapshot: Snapshot, startable_now: list[int]) -> None:
    assert now(snapshot) == startable_now


def test_gang_starts_on_nodes_that_the_job_ahead_does_not_reserve() -> None:
    pinned = make_job(1, gang=make_gang(8, nodes_max=1, required_nodes=("n04",)), priority=2000)
    gang = make_job(2, gang=RANGE, time_limit_s=2 * DAY_S)

    turn = turns_of(half_idle([pinned, gang]))[2]

    assert turn.claim is not None
    assert turn.claim.rows.tolist() == [0, 1]
    assert not turn.is_first


def test_gang_for_which_slurmctld_plans_a_later_start_cannot_start_now() -> None:
    gang = make_job(1, gang=RANGE)

    assert now(half_idle([gang])) == [1]
    assert now(half_idle([replace(gang, start_time=TAKEN_AT + HOUR_S)])) == []
    assert now(half_idle([replace(gang, start_time=TAKEN_AT - 30.0)])) == [1]


def test_first_in_line_is_the_gang_for_whose_nodes_no_job_ahead_waits() -> None:
    starting, blocked = make_job(1, gpus=2, priority=3000), make_job(1, gang=make_gang(9, nodes_max=1), priority=3000)
    elsewhere = replace(blocked, partitions=("other",))
    gang = make_job(2, gang=RANGE)
    partitions = [make_partition(nodes=["n01", "n02", "n03"]), make_partition("other", nodes=["n04"])]

    apart = replace(half_idle([elsewhere, gang]), partitions=tuple(partitions))

    assert turns_of(half_idle([starting, gang]))[2].is_first
    assert not turns_of(half_idle([blocked, gang]))[2].is_first
    assert turns_of(apart)[2].is_first


def test_job_ahead_that_waits_for_another_type_leaves_a_gang_first_in_line() -> None:
    types = ("h100", "h100", "a100", "a100")
    nodes = [make_node(f"n0{row}", used=4, gpu_type=name) for row, name in enumerate(types, start=1)]
    waits = make_job(1, gang=make_gang(8, gpu_type="a100", nodes_max=1), priority=3000)
    gangs = [make_job(2 + at, gang=make_gang(8, gpu_type=name, nodes_max=4)) for at, name in enumerate(("h100", None))]

    found = turns_of(make_snapshot([waits, *gangs], nodes))

    assert [found[number].is_first for number in (2, 3)] == [True, False]


def test_gang_is_not_soon_where_a_job_of_a_higher_tier_waits_for_its_nodes() -> None:
    running = [
        make_job(100 + row, gpus=8, running_on=[f"n0{row}"], started_ago_s=0.0, time_limit_s=1500.0)
        for row in range(1, 5)
    ]
    gang = make_job(2, gang=RANGE)
    urgent = make_job(1, gang=make_gang(8, nodes_max=1), partitions=("urgent",), priority=1)
    partitions = [make_partition(), make_partition("urgent", priority_tier=2)]

    soon = turns_of(make_snapshot([gang, *running], partitions=partitions))
    behind = turns_of(make_snapshot([gang, urgent, *running], partitions=partitions))

    assert soon[2].claim is None and soon[2].start_s == 300.0
    assert 2 not in behind


def test_gang_beyond_the_depth_of_backfill_gets_no_timer() -> None:
    ahead = make_job(9, gang=make_gang(9, nodes_max=1), priority=5000, time_limit_s=None)
    snapshot = half_idle([ahead, make_job(1, gang=RANGE, time_limit_s=2 * DAY_S)])

    assert timed(Cycle().judge(snapshot)) == [1]
    assert (
        timed(Cycle().judge(replace(snapshot, config=make_config(scheduler_parameters={"bf_max_job_test": "1"})))) == []
    )


def forecast(
    run_hours: Sequence[float], speed: Sequence[float], tiers: Iterable[LocalityTier] = LocalityTier
) -> FixedForecaster:
    """A forecast for job 1 of its run time, and of its speed spread over leaves; on one leaf or node it is 1."""
    low_s, median_s, high_s = (hours * HOUR_S for hours in run_hours)
    exact = Interval(low=1.0, median=1.0, high=1.0)
    low, median, high = speed
    spread = Interval(low=low, median=median, high=high)
    speeds = {
        Placement(gpus=16, tier=tier): exact if tier <= LocalityTier.LEAF else spread
        for tier in tiers
        if tier <= LocalityTier.SPINE
    }
    run_time = RunTime(interval_s=Interval(low=low_s, median=median_s, high=high_s), mean_s=median_s)
    return FixedForecaster(by_job={1: JobForecast(run_time=run_time, speed_by_placement=speeds)})


def first_over_leaves(sensitivity: Sensitivity | None = None) -> Snapshot:
    """The first in line wants two nodes; one is idle under each leaf, and one of each comes free in five minutes."""
    running = [
        make_job(100 + row, gpus=8, running_on=[f"n0{row}"], started_ago_s=0.0, time_limit_s=1500.0) for row in (2, 4)
    ]
    pair = make_gang(16, nodes_min=2, nodes_max=2, tasks=2)
    hints = make_hints(sensitivity=sensitivity)
    return make_snapshot([make_job(1, gang=pair, hints=hints, time_limit_s=2 * DAY_S), *running])


SURE = forecast((20, 24, 30), (0.7, 0.75, 0.8))


def test_first_in_line_waits_by_the_lower_end_of_a_forecast() -> None:
    (change,) = Cycle(forecaster=SURE).judge(first_over_leaves()).recommendations

    # 20 h times 1 / 0.8 - 1 are 5 h; half an hour is assumed, and at most three times that.
    assert change.expected.added_delay_max_s == 90 * 60.0
    assert change.evidence["first_in_line"] is True
    assert "could start now only spread out" in sentence(change)
    assert assumption(change).endswith("As the first in line, it is judged by the lower ends of its forecasts")


def test_wait_of_the_first_in_line_is_bounded_by_the_lower_end_of_what_it_saves() -> None:
    (change,) = Cycle(forecaster=forecast((3, 24, 30), (0.7, 0.75, 0.8))).judge(first_over_leaves()).recommendations

    assert change.expected.added_delay_max_s == 45 * 60.0


@pytest.mark.parametrize(
    "forecaster",
    [
        FixedForecaster(by_job={}),
        forecast((1, 24, 30), (0.7, 0.75, 0.8)),
        forecast((20, 24, 30), (0.7, 0.75, 1.0)),
        forecast((20, 24, 30), (0.7, 0.75, 0.8), tiers=[LocalityTier.LEAF]),
        FixedForecaster(by_job={1: replace(SURE.by_job[1], run_time=None)}),
    ],
    ids=[
        "nothing forecast",
        "a short run pays less than the wait",
        "spreading costs nothing at the lower end",
        "no forecast over leaves",
        "no forecast of the run time",
    ],
)
@pytest.mark.parametrize("sensitivity", [None, Sensitivity.HIGH], ids=["", "declared sensitive"])
def test_first_in_line_does_not_wait_for_what_no_forecast_bears_out(
    forecaster: FixedForecaster, sensitivity: Sensitivity | None
) -> None:
    assert timed(Cycle(forecaster=forecaster).judge(first_over_leaves(sensitivity))) == []


def test_second_in_line_waits_by_rule() -> None:
    blocked = make_job(9, gang=make_gang(9, nodes_max=1), priority=5000, time_limit_s=None)
    snapshot = first_over_leaves()

    assert timed(Cycle().judge(replace(snapshot, jobs=(*snapshot.jobs, blocked)))) == [1]


def held_to_one_node(ago_s: float) -> Lease:
    """The timer of a gang that has run for a while."""
    action = SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))
    return replace(intended(action, TAKEN_AT - ago_s, after_s=HOUR_S), state=LeaseState.OUT)


@pytest.mark.parametrize(("jobs_ahead", "gangs_seen"), [(0, 1), (57, 0)])
def test_wait_that_goes_on_counts_only_near_the_head(jobs_ahead: int, gangs_seen: int) -> None:
    ahead = [make_job(number, gang=make_gang(8, nodes_max=1), priority=5000) for number in range(10, 10 + jobs_ahead)]
    lease = held_to_one_node(600.0)
    gang = lease.action.applied_to(make_job(1, gang=RANGE, time_limit_s=2 * DAY_S, start_time=TAKEN_AT + DAY_S))

    case = Case(snapshot=half_idle([gang, *ahead]), memory=Memory(leases=(lease,)))

    assert case.tuner.seen(8, LocalityTier.NODE).gangs == gangs_seen


@pytest.mark.slow
@given(seed=st.integers(0, 100_000))
def test_plan_about_one_gang_holds_its_timers_of_the_whole_plan(seed: int) -> None:
    snapshot = random_queues.snapshot(np.random.default_rng(seed))
    whole = Case(snapshot=snapshot)
    timers = {change.job_id: change for change in placement.recommendations(whole)}

    for job in snapshot.pending:
        asked = replace(whole, asked=frozenset({job.job_id}))
        found = {change.job_id: change for change in placement.recommendations(asked)}
        assert found.get(job.job_id) == timers.get(job.job_id)
