"""Which jobs are lifted, how far, and what that saves and costs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.apply.applier import Applier
from advisor.apply.memory_journal import MemoryJournal
from advisor.apply.rehearsal import RehearsedCluster
from advisor.cycle import Cycle
from advisor.domain.actions import SetNice
from advisor.domain.forecast import Forecasts
from advisor.domain.job import ArrayRecord, Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.mark import is_marked, marked_below
from advisor.domain.memory import Memory
from advisor.domain.plan import Outcome
from advisor.domain.request import request_of
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import standings_of
from advisor.features.queue import slurms_place
from advisor.planning import lift_gain
from advisor.planning.beliefs import Basis
from advisor.planning.case import Case
from advisor.planning.lift import StartsNext, lifted_gpu_s, recommendations
from advisor.planning.lift_gain import LATER_SHARE, SHARES
from advisor.settings import Fairness, Limits, PlanningSettings
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.traces.trace import Trace
from tests.builders import (
    DAY_S,
    HOUR_S,
    TAKEN_AT,
    make_gang,
    make_hints,
    make_job,
    make_node,
    make_partition,
    make_snapshot,
    make_stretch,
)
from tests.examples import examples
from tests.planning.queues import WEIGHTED, busy, lifts_of, shorts, simulated_rounds
from tests.planning.test_soft_limit import run_time
from tests.sim.building import make_trace

LONG = make_job(1, gpus=16, priority=1000, time_limit_s=40 * HOUR_S)
BY_SIZE = Limits(fairness="site")


def lifted(job: Job, nice: int = -5007) -> tuple[Job, Lease]:
    """A job that was lifted an hour ago, and its lease."""
    action = SetNice(job_id=job.job_id, before=job.nice, after=nice)
    lease = intended(action, TAKEN_AT - HOUR_S, after_s=6 * HOUR_S, job=job)
    return action.applied_to(job), replace(lease, state=LeaseState.OUT)


def test_short_jobs_are_lifted_above_the_long_one_before_them() -> None:
    snapshot = busy(LONG, *shorts(2))

    lifts = lifts_of(Cycle().judge(snapshot))

    assert lifts.keys() == {10, 11}
    after = {job_id: change.action.applied_to(snapshot.jobs_by_id[job_id]) for job_id, change in lifts.items()}
    assert all(job.priority is not None and job.priority > 1000 and is_marked(job.nice) for job in after.values())
    assert {change.revert_after_s for change in lifts.values()} == {24 * HOUR_S}


def test_facts_and_net_saving_of_a_lift() -> None:
    (change,) = Cycle(limits=BY_SIZE).judge(busy(LONG, *shorts(1))).recommendations

    facts, action = change.facts, change.action
    assert isinstance(facts, StartsNext) and isinstance(action, SetNice)
    # A fifth of the limit is the run time that is expected by rule: 2 x 0.2 h, and 16 x 8 h ahead.
    assert (facts.gpu_hours, facts.gpu_hours_ahead, facts.gpu_hours_ahead_after) == pytest.approx((0.4, 128.0, 0.0))
    assert (facts.jobs_passed, facts.basis, facts.queueing_delay_s) == (1, Basis.RULE, HOUR_S)
    assert facts.turnaround_s == pytest.approx(HOUR_S + 4 * HOUR_S + 0.2 * HOUR_S)
    assert facts.others_delayed_s_max == pytest.approx(2 * HOUR_S / 32)
    assert facts.priority_after == 900 - action.after
    # 16 GPUs x 8 h over 32 GPUs are passed, by 2 GPUs x 0.2 h; nothing is ahead any more.
    run_s = (16 * 8 + 2 * 0.2) / 18 * HOUR_S
    assert facts.sooner_s_low == 0.0
    assert facts.sooner_s_high == pytest.approx(SHARES.passed * 4 * HOUR_S + SHARES.run * run_s)
    assert change.expected.saved_s_low == pytest.approx(facts.sooner_s_low - LATER_SHARE * 0.4 / 32 * HOUR_S)
    assert change.expected.saved_s_high == facts.sooner_s_high
    # On average a share of the work that it passes.
    assert change.expected.saved_s == pytest.approx((SHARES.mean * 4 - LATER_SHARE * 0.4 / 32) * HOUR_S)
    assert (change.expected.jobs_helped, change.expected.added_delay_max_s) == (1, 0.0)


def test_time_that_a_lift_takes_from_another_lifted_job_is_counted_once() -> None:
    smaller = replace(shorts(2)[1], gang=make_gang(1))
    changes = Cycle(limits=BY_SIZE).judge(busy(LONG, shorts(1)[0], smaller)).recommendations

    first, second = changes
    assert [change.job_id for change in changes] == [10, 11]
    assert isinstance(first.facts, StartsNext) and isinstance(second.facts, StartsNext)
    # The smaller one passes both, the other the long one alone: three pairs change places.
    assert (first.facts.jobs_passed, second.facts.jobs_passed) == (1, 2)


def test_job_that_has_waited_for_most_of_its_turnaround_goes_ahead_of_a_job_that_is_smaller_by_a_tenth() -> None:
    young = make_job(1, gpus=8, priority=1000, time_limit_s=9 * HOUR_S, submitted_ago_s=120.0)
    old = make_job(2, gpus=8, priority=900, time_limit_s=10 * HOUR_S, submitted_ago_s=48 * HOUR_S)

    (change,) = lifts_of(Cycle().judge(busy(young, old))).values()

    assert change.job_id == 2


def test_gain_is_counted_against_the_order_as_submitted_and_the_loss_behind_jobs_lifted_as_well() -> None:
    # A lift has put the first one, of 0.4 GPU-hours, ahead of a long job; the second is lifted to below it.
    first, lease = lifted(shorts(1)[0], -900_007)
    second = make_job(20, gpus=4, priority=950, time_limit_s=HOUR_S)

    (change,) = lifts_of(Cycle(limits=BY_SIZE).judge(busy(LONG, first, second), Memory(leases=(lease,)))).values()

    assert isinstance(change.facts, StartsNext) and change.job_id == 20
    outlook = change.facts.outlook
    assert (outlook.site_ahead_s, outlook.ahead_s) == pytest.approx((128 / 32 * HOUR_S, 0.4 / 32 * HOUR_S))
    assert (outlook.jobs_passed, outlook.own_s) == pytest.approx((1, 0.8 / 32 * HOUR_S))


def test_lift_that_is_expected_to_lose_is_not_proposed_unless_its_job_is_late() -> None:
    # The old job stood first as submitted, so that it gains nothing by passing the one that was lifted past it.
    small, lease = lifted(make_job(10, gpus=8, priority=900, time_limit_s=9 * HOUR_S, submitted_ago_s=120.0))
    old = make_job(2, gpus=8, priority=1000, time_limit_s=10 * HOUR_S, submitted_ago_s=48 * HOUR_S)

    def proposed(**memory: Any) -> Mapping[int, Any]:
        return lifts_of(Cycle().judge(busy(small, old), Memory(leases=(lease,), **memory)))

    late = replace(make_stretch(), late=((old.job_id, TAKEN_AT - 40 * DAY_S),))

    assert proposed() == {}
    assert proposed(standings=standings_of([late])).keys() == {old.job_id}


def test_wait_counts_as_lost_as_far_as_advice_can_have_caused_it() -> None:
    long_ago, (short,) = replace(LONG, submit_time=TAKEN_AT - 9 * HOUR_S), shorts(1)
    _, lease = lifted(make_job(30))
    changed = replace(lease, applied_time=TAKEN_AT - 0.25 * HOUR_S)

    def lost_s(*leases: Lease) -> float:
        (change,) = lifts_of(Cycle(limits=BY_SIZE).judge(busy(long_ago, short), Memory(leases=leases))).values()
        assert isinstance(change.facts, StartsNext)
        return -change.facts.sooner_s_low

    assert short.queueing_delay_s(TAKEN_AT) == HOUR_S
    assert lost_s() == 0.0
    assert lost_s(changed) == pytest.approx(SHARES.advised * 0.25 * HOUR_S)
    assert lost_s(changed, replace(lease, applied_time=TAKEN_AT - 5 * HOUR_S)) == pytest.approx(SHARES.advised * HOUR_S)


def test_job_is_not_lifted_twice() -> None:
    short, lease = lifted(shorts(1)[0])
    behind = replace(short, priority=950)

    assert lifts_of(Cycle().judge(busy(LONG, short), Memory(leases=(lease,)))) == {}
    assert lifts_of(Cycle().judge(busy(LONG, behind), Memory(leases=(lease,)))) == {}


def test_job_put_back_when_its_lift_was_due_is_lifted_again_after_the_cooldown() -> None:
    job, lease = lifted(shorts(1)[0])
    assert job.nice == lease.action.after

    def lifts_after(ended_ago_s: float) -> set[int]:
        ended = replace(lease, applied_time=TAKEN_AT - 7 * HOUR_S).ended(Ending.TAKEN_BACK, TAKEN_AT - ended_ago_s)
        return set(lifts_of(Cycle().judge(busy(LONG, shorts(1)[0]), Memory(leases=(ended,)))))

    assert (lifts_after(599.0), lifts_after(600.0)) == (set(), {10})


@pytest.mark.parametrize(("fairness", "count"), [("user", 0), ("account", 0), ("trade", 2), ("site", 2), ("lane", 2)])
def test_no_job_is_lifted_where_jobs_of_others_are_not_to_be_passed(fairness: Fairness, count: int) -> None:
    case = Case(snapshot=busy(LONG, *shorts(2)), limits=Limits(fairness=fairness))

    assert len(list(recommendations(case))) == count


def test_a_lane_lifts_no_more_than_its_share_of_the_window_also_once_what_it_lifted_runs() -> None:
    # 0.4 GPU-hours of the 32 GPUs in an hour, and each short job is expected to take as much.
    limits = Limits(fairness="lane", lane_ratio=1 / 80, fairness_window_s=HOUR_S, interactive_ratio=0.1)
    first, second = shorts(2)

    def lifts_after(age_s: float, nice: int = -5) -> set[int]:
        lift = SetNice(job_id=7, before=0, after=nice)
        asked = replace(request_of(first), gpu_s=0.4 * HOUR_S)
        lease = intended(lift, TAKEN_AT - age_s, job=replace(first, job_id=7), request=asked)
        ended = replace(lease, state=LeaseState.OUT).ended(Ending.NO_LONGER_PENDING, TAKEN_AT - 60.0)
        case = Case(snapshot=busy(LONG, first, second), limits=limits, memory=Memory(leases=(ended,)))
        return {change.job_id for change in recommendations(case)}

    assert lifts_after(HOUR_S - 1.0) == set()
    assert lifts_after(HOUR_S) == {10}
    # That of an interactive job, which has a share of its own.
    assert lifts_after(HOUR_S - 1.0, nice=-1_999_999_997) == {10}


def test_a_lane_counts_what_forecasts_expect() -> None:
    limits = Limits(fairness="lane", lane_ratio=1 / 80, fairness_window_s=HOUR_S)
    minutes = Forecasts(by_job={10: run_time(30.0, 60.0, 90.0), 11: run_time(30.0, 60.0, 90.0)})

    def lifted(forecasts: Forecasts) -> set[int]:
        case = Case(snapshot=busy(LONG, *shorts(2)), limits=limits, forecasts=forecasts)
        return {change.job_id for change in recommendations(case)}

    assert (lifted(Forecasts()), lifted(minutes)) == ({10}, {10, 11})


def test_job_that_must_not_be_changed_is_not_lifted() -> None:
    out = replace(shorts(1)[0], hints=make_hints(opted_out=True))

    assert lifts_of(Cycle().judge(busy(LONG, out, shorts(2)[1]))).keys() == {11}


def test_only_the_first_places_are_lifted() -> None:
    record = Cycle(planning=PlanningSettings(lift_places=3)).judge(busy(LONG, *shorts(8)))

    assert len(lifts_of(record)) == 3


def test_jobs_beyond_the_depth_are_lifted_as_well() -> None:
    record = Cycle(planning=PlanningSettings(depth=1)).judge(busy(LONG, *shorts(2)))

    assert lifts_of(record).keys() == {10, 11}


def test_job_without_known_run_time_neither_moves_nor_counts() -> None:
    endless = make_job(2, gpus=32, priority=2000, time_limit_s=None)

    assert lifts_of(Cycle().judge(busy(endless, *shorts(1)))) == {}


def test_forecasts_count_in_place_of_limits() -> None:
    snapshot = busy(LONG, *shorts(1))
    forecasts = {1: run_time(30.0, 60.0, 90.0), 10: run_time(1800.0, 3600.0, 3600.0)}
    case = Case(snapshot=snapshot, forecasts=Forecasts(by_job=forecasts))

    # The long job is forecast to run a minute.
    assert list(recommendations(case)) == []


def test_array_is_lifted_by_the_size_of_a_task_and_its_cost_counts_all() -> None:
    array = replace(shorts(1)[0], array=ArrayRecord(array_job_id=10, waiting="1-60"))

    (change,) = lifts_of(Cycle(limits=BY_SIZE).judge(busy(LONG, array))).values()

    assert isinstance(change.facts, StartsNext)
    assert change.facts.gpu_hours == pytest.approx(60 * 2 * 0.2)
    assert change.facts.others_delayed_s_max == pytest.approx(60 * 2 * HOUR_S / 32)
    assert change.expected.saved_s_low == pytest.approx(-LATER_SHARE * 60 * 2 * 0.2 / 32 * HOUR_S)


def test_array_is_lifted_only_if_all_its_waiting_tasks_fit_the_bound() -> None:
    # By its limit each task takes two GPU-hours; all 32 GPUs work on 128 of them for eight hours.
    fits, is_too_large = (
        replace(shorts(1)[0], array=ArrayRecord(array_job_id=10, waiting=f"1-{count}")) for count in (128, 129)
    )

    assert lifts_of(Cycle().judge(busy(LONG, fits))).keys() == {10}
    assert lifts_of(Cycle().judge(busy(LONG, is_too_large))).keys() == set()


def test_arrays_of_one_user_leave_half_of_the_bound_to_others_who_wait() -> None:
    # Twenty arrays of 1,000 tasks of two minutes on one GPU: 33 GPU-hours each by their limits, of 128 for one user.
    arrays = [
        make_job(
            10 + number,
            gpus=1,
            priority=900,
            user="mallory",
            time_limit_s=120.0,
            array=ArrayRecord(array_job_id=10 + number, waiting="1-1000"),
        )
        for number in range(20)
    ]
    honest = make_job(40, gpus=4, priority=950, user="bob", time_limit_s=600.0)

    lifts = lifts_of(Cycle().judge(busy(LONG, honest, *arrays)))

    assert 40 in lifts
    assert len(lifts) == 1 + 3


def test_lifts_that_have_not_started_count() -> None:
    first, lease = lifted(replace(shorts(1)[0], array=ArrayRecord(array_job_id=10, waiting="1-80")))
    second = replace(shorts(2)[1], array=ArrayRecord(array_job_id=11, waiting="1-50"))

    # 160 GPU-hours are lifted, of 256; 100 more do not fit.
    assert lifts_of(Cycle().judge(busy(LONG, first, second), Memory(leases=(lease,)))).keys() == set()
    assert lifts_of(Cycle().judge(busy(LONG, second))).keys() == {11}


def test_exclusive_job_counts_with_the_gpus_of_its_node() -> None:
    long = make_job(1, gpus=4, priority=1000, time_limit_s=2 * HOUR_S)
    exclusive = make_job(2, gang=make_gang(1, exclusive=True), priority=900, time_limit_s=2 * HOUR_S)

    assert lifts_of(Cycle(limits=BY_SIZE).judge(busy(long, exclusive))).keys() == set()
    assert lifts_of(Cycle(limits=BY_SIZE).judge(busy(long, replace(exclusive, gang=make_gang(1))))).keys() == {2}


def test_job_with_many_cpus_counts_with_the_gpus_that_it_strands() -> None:
    long = make_job(1, gpus=4, priority=1000, time_limit_s=2 * HOUR_S)
    many = make_job(2, gang=make_gang(1, cpus=64), priority=900, time_limit_s=2 * HOUR_S)

    (facts,) = [change.facts for change in lifts_of(Cycle(limits=BY_SIZE).judge(busy(LONG, many))).values()]

    assert lifts_of(Cycle(limits=BY_SIZE).judge(busy(long, many))).keys() == set()
    # What the lift costs others is printed by the same measure: 8 GPUs for two hours, of 32.
    assert isinstance(facts, StartsNext)
    assert (facts.gpu_hours, facts.others_delayed_s_max) == pytest.approx((8 * 0.4, 8 * 2 * HOUR_S / 32))


def test_job_with_a_range_counts_with_the_size_that_it_asks_for() -> None:
    wide = make_job(2, gpus=8, priority=900, time_limit_s=2 * HOUR_S, hints=make_hints(gpus=(1, 8)))
    middle = make_job(3, gpus=4, priority=800, time_limit_s=2 * HOUR_S)

    lifts = lifts_of(Cycle(limits=BY_SIZE).judge(busy(LONG, wide, middle)))

    assert lifts.keys() == {2, 3}
    after = {job.job_id: lifts[job.job_id].action.applied_to(job) for job in (wide, middle)}
    assert (after[3].priority or 0) > (after[2].priority or 0)


def test_jobs_that_want_gpus_of_another_type_are_not_passed() -> None:
    nodes = [make_node("n01", used=8, gpu_type="a100"), make_node("n02", used=8, gpu_type="h100")]
    long = replace(LONG, gang=make_gang(4, gpu_type="a100"))
    short = replace(shorts(1)[0], gang=make_gang(4, gpu_type="h100"))

    assert lifts_of(Cycle().judge(make_snapshot([long, short], nodes))) == {}


def test_jobs_of_a_partition_that_shares_other_nodes_alone_are_not_passed() -> None:
    # Both partitions have n02; the GPUs that the short job asks for are on n03.
    partitions = [make_partition("big", ("n01", "n02")), make_partition("old", ("n02", "n03"))]
    nodes = [
        make_node(name, used=8, gpu_type=kind) for name, kind in (("n01", "a100"), ("n02", "a100"), ("n03", "v100"))
    ]
    long = replace(LONG, partitions=("big",))
    apart, beside = (
        replace(shorts(1)[0], gang=make_gang(2, gpu_type=kind), partitions=("old",)) for kind in ("v100", "a100")
    )

    def lifted_of(job: Job) -> Mapping[int, Any]:
        return lifts_of(Cycle().judge(make_snapshot([long, job], nodes, partitions=partitions, config=WEIGHTED)))

    assert lifted_of(apart) == {}
    assert lifted_of(beside).keys() == {beside.job_id}


def test_own_nice_is_where_a_lift_begins_and_what_it_restores() -> None:
    own = replace(shorts(1)[0], nice=100_000)

    (change,) = lifts_of(Cycle().judge(busy(LONG, own))).values()

    action = change.action
    assert isinstance(action, SetNice)
    assert action.before == 100_000 and 0 < action.after < 100_000
    assert own.priority is not None and own.priority + action.before - action.after > 1000


def test_user_who_waited_longer_than_without_advice_goes_first() -> None:
    mine, other = (
        replace(job, user=user, priority=900) for job, user in zip(shorts(2), ("mine", "other"), strict=True)
    )
    gave = standings_of([make_stretch(waited_s=20 * HOUR_S, plain_s=(HOUR_S,), user="other")])
    cycle = Cycle(planning=PlanningSettings(lift_places=1))

    without = lifts_of(cycle.judge(busy(LONG, mine, other)))
    repaid = lifts_of(cycle.judge(busy(LONG, mine, other), Memory(standings=gave)))

    assert without.keys() == {mine.job_id}
    assert repaid.keys() == {other.job_id}


def test_job_that_is_too_late_goes_first() -> None:
    first, late = shorts(2)
    large = replace(late, gang=make_gang(16), time_limit_s=40 * HOUR_S)
    limits = Limits(max_lateness_s=HOUR_S, max_lateness_ratio=0.0)
    started = replace(make_stretch(), late=((large.job_id, TAKEN_AT - 2 * HOUR_S),))
    in_time = replace(started, late=((large.job_id, TAKEN_AT - 0.5 * HOUR_S),))
    cycle = Cycle(limits=limits, planning=PlanningSettings(lift_places=1))

    too_late, not_yet = (
        lifts_of(cycle.judge(busy(LONG, first, large), Memory(standings=standings_of([stretch]))))
        for stretch in (started, in_time)
    )

    assert too_late.keys() == {large.job_id}
    assert not_yet.keys() == {first.job_id}


def late_and_lifted() -> tuple[Snapshot, Memory, Job, Job]:
    """A queue in which a small job and a large one are lifted, the large one behind the small one and too late."""
    small, large = shorts(2)
    large = replace(large, gang=make_gang(16), time_limit_s=40 * HOUR_S)
    (small, of_small), (large, of_large) = lifted(small, -9007), lifted(large, -5007)
    late = replace(make_stretch(), late=((large.job_id, TAKEN_AT - 2 * HOUR_S),))
    memory = Memory(leases=(of_small, of_large), standings=standings_of([late]))
    return busy(LONG, small, large), memory, small, large


def test_lifted_job_that_becomes_too_late_is_lifted_above_all_others_once() -> None:
    snapshot, memory, small, large = late_and_lifted()
    cycle = Cycle(limits=Limits(max_lateness_s=HOUR_S, max_lateness_ratio=0.0))

    (change,) = cycle.judge(snapshot, memory).recommendations
    after = change.action.applied_to(large)

    assert change.job_id == large.job_id
    assert slurms_place(after, 0) < slurms_place(small, 0)
    action, (of_small, lease) = change.action, memory.leases
    assert isinstance(action, SetNice) and action.before == large.nice
    then = replace(memory, leases=(of_small, replace(lease, action=action, applied_time=TAKEN_AT)))
    moved = replace(snapshot, jobs=tuple(after if job is large else job for job in snapshot.jobs))
    assert cycle.judge(moved, then).recommendations == ()


@pytest.mark.parametrize("nice", [0, -5007])
def test_late_job_at_the_head_stays_ahead_of_a_job_that_is_lifted_in_the_same_round(nice: int) -> None:
    small, large = shorts(2)
    large = replace(large, time_limit_s=20 * HOUR_S, priority=1100)
    leases: tuple[Lease, ...] = ()
    if nice:
        large, lease = lifted(large, nice)
        leases = (lease,)
    late = replace(make_stretch(), late=((large.job_id, TAKEN_AT - 2 * HOUR_S),))
    snapshot = busy(large, LONG, small)
    cycle = Cycle(limits=Limits(max_lateness_s=HOUR_S, max_lateness_ratio=0.0))

    changes = {
        change.job_id: change
        for change in cycle.judge(snapshot, Memory(leases=leases, standings=standings_of([late]))).recommendations
    }

    assert changes.keys() == {large.job_id, small.job_id}
    first, second = (changes[job.job_id].action.applied_to(job) for job in (large, small))
    assert slurms_place(first, 0) < slurms_place(second, 0)
    facts = changes[large.job_id].facts
    assert isinstance(facts, StartsNext) and facts.passed == (small.job_id,)
    alone = cycle.judge(busy(large, LONG), Memory(leases=leases, standings=standings_of([late])))
    assert large.job_id not in lifts_of(alone)


def test_lifted_job_is_lifted_again_only_if_it_is_too_late_and_its_lift_took_effect() -> None:
    snapshot, memory, _, large = late_and_lifted()
    of_small, lease = memory.leases
    late = Cycle(limits=Limits(max_lateness_s=HOUR_S, max_lateness_ratio=0.0))

    def is_changed(cycle: Cycle, lease: Lease) -> bool:
        changes = cycle.judge(snapshot, replace(memory, leases=(of_small, lease))).recommendations
        return large.job_id in {change.job_id for change in changes}

    assert is_changed(late, lease)
    assert not is_changed(Cycle(limits=Limits(max_lateness_s=3 * HOUR_S)), lease)
    assert not is_changed(late, replace(lease, state=LeaseState.INTENDED))
    assert not is_changed(late, replace(lease, state=LeaseState.RETURNING))


def test_lift_below_the_lowest_nice_is_left_out() -> None:
    assert lifts_of(Cycle(limits=Limits(nice_min=-1000)).judge(busy(LONG, *shorts(1)))) == {}


@pytest.mark.parametrize(
    ("nice", "marked"), [(20, 17), (17, 17), (16, 7), (7, 7), (6, -7), (0, -7), (-7, -7), (-8, -17), (-17, -17)]
)
def test_mark_moves_a_lifted_job_up_alone(nice: int, marked: int) -> None:
    assert marked_below(nice) == marked


SLURM = SlurmParameters(
    tick_s=0.0, batch_sched_delay_s=0.0, priority_weight_age=1000.0, priority_weight_fairshare=5000.0
)
TWO = Cluster(nodes=(NodeGroup(count=2, gpus=4, leaf=2),), slurm=SLURM)


@st.composite
def queues(draw: st.DrawFn) -> Trace:
    """Draw two jobs that fill the cluster, and jobs that wait behind them."""
    full = {"gpus": 4, "run_time_s": 90_000, "time_limit_s": 100_000}
    waiting: list[dict[str, Any]] = [
        {
            "submit_time": float(draw(st.sampled_from([1, 7, 60, 600, 3000]))),
            "gpus": draw(st.sampled_from([1, 2, 4])),
            "run_time_s": 500,
            "time_limit_s": draw(st.sampled_from([600.0, 3600.0, 7200.0, 90_000.0, np.inf])),
            "nice": draw(st.sampled_from([0, 0, 0, 50, -7])),
            "user": draw(st.sampled_from(["ann", "bob", "cy"])),
            "exclusive": draw(st.sampled_from([0, 0, 1])),
            "cpus": draw(st.sampled_from([0, 0, 64])),
        }
        for _ in range(draw(st.integers(2, 14)))
    ]
    return make_trace([full, full, *sorted(waiting, key=lambda job: job["submit_time"])])


@settings(max_examples=examples(100), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    trace=queues(),
    fairness=st.sampled_from(["trade", "site", "lane"]),
    lane_ratio=st.sampled_from([0.01, 0.1, 1.0]),
    lift_places=st.sampled_from([1, 3, 20]),
    lift_work_s=st.sampled_from([600.0, 4 * HOUR_S]),
    cycles=st.lists(st.sampled_from([300.0, 3300.0, 3900.0, 9000.0]), min_size=1, max_size=3, unique=True).map(sorted),
)
def test_lifts_are_those_of_the_simulated_policy(
    trace: Trace, fairness: Fairness, lane_ratio: float, lift_places: int, lift_work_s: float, cycles: list[float]
) -> None:
    limits = Limits(fairness=fairness, lane_ratio=lane_ratio, fairness_window_s=HOUR_S)
    planning = PlanningSettings(lift_places=lift_places, lift_work_s=lift_work_s)
    leases: list[Lease] = []
    rounds = simulated_rounds(trace, TWO, cycles, leases, limits=limits, planning=planning)
    for now, case, run_policy in rounds:
        # The simulated policy does not ask what a lift is expected to lose.
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(lift_gain, "LATER_SHARE", 0.0)
            changes = {change.job_id: change.action.after for change in recommendations(case)}

        nice_after = run_policy()

        pending = case.snapshot.pending
        simulated_lifts = [
            SetNice(job_id=job.job_id, before=job.nice, after=nice_after[job.job_id])
            for job in pending
            if nice_after[job.job_id] != job.nice
        ]
        known = [job for job in pending if job.time_limit_s is not None]
        lifted_jobs = [
            SetNice(job_id=job.job_id, before=job.nice, after=nice_after[job.job_id]).applied_to(job) for job in known
        ]
        places = [
            {job.job_id: place for place, job in enumerate(sorted(jobs, key=lambda job: slurms_place(job, 1)))}
            for jobs in (known, lifted_jobs)
        ]
        # A lift that changes no order is not proposed.
        assert changes == {
            lift.job_id: marked_below(lift.after) for lift in simulated_lifts if _passes(lift.job_id, *places)
        }
        queue, job_by_id = case.whole_queue, case.snapshot.jobs_by_id
        counted = lifted_gpu_s(queue, limits).tolist()
        gpu_s = {job.job_id: gpu_s for job, gpu_s in zip(queue.jobs, counted, strict=True)}
        for lift in simulated_lifts:
            job = job_by_id[lift.job_id]
            request = replace(request_of(job), gpu_s=gpu_s[lift.job_id])
            lease = intended(lift, now, after_s=planning.lift_lease_s, job=job, request=request)
            leases.append(replace(lease, state=LeaseState.OUT))
        if fairness == "lane":
            spent = sum(
                lease.request.gpu_s or 0.0 for lease in leases if lease.request and lease.applied_time > now - HOUR_S
            )
            assert spent <= lane_ratio * HOUR_S * 8


def _passes(job_id: int, before: Mapping[int, int], after: Mapping[int, int]) -> bool:
    """Return whether a job goes ahead of another that was before it."""
    return any(before[other] < before[job_id] and after[other] > after[job_id] for other in before)


def test_second_lift_takes_the_place_of_the_first_and_restores_what_the_user_set() -> None:
    snapshot, memory, _, large = late_and_lifted()
    cluster = RehearsedCluster(snapshot)
    journal = MemoryJournal(leases=memory.leases, standings=memory.standings)
    cycle = Cycle(limits=Limits(max_lateness_s=HOUR_S, max_lateness_ratio=0.0))
    applier = Applier(source=cluster, actuator=cluster, cycle=cycle, journal=journal)

    (receipt,) = applier.step().applied
    lifted_nice = cluster.snapshot().jobs_by_id[large.job_id].nice
    applier.revert(applier.leased())

    assert receipt.outcome is Outcome.APPLIED
    assert lifted_nice < large.nice < 0
    assert cluster.snapshot().jobs_by_id[large.job_id].nice == 0
    assert journal.leases() == ()
