"""What changed jobs would have had as submitted, and when their changes no longer serve."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.cycle import Cycle
from advisor.domain.actions import Lever, NodeRange, Reason, SetNice, SetNodeRange
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.memory import Memory
from advisor.domain.plan import Plan
from advisor.planning.case import Case
from advisor.planning.compensation import DelayedByAdvice
from advisor.planning.counterfactual import Watched, with_planned_starts
from advisor.settings import Limits
from tests.builders import HOUR_S, TAKEN_AT, make_gang, make_job, make_recommendation, make_snapshot
from tests.examples import examples
from tests.golden import random_queues

NODES = ("n01", "n02", "n03", "n04")  # of 8 GPUs each
SINCE = TAKEN_AT - 600.0


def running(*gpus: int, started_ago_s: float = HOUR_S, left_s: float = HOUR_S, priority: int = 500) -> list[Job]:
    """Jobs that hold some GPUs of each node."""
    return [
        make_job(
            100 + number,
            gpus=count,
            running_on=[name],
            started_ago_s=started_ago_s,
            time_limit_s=started_ago_s + left_s,
            priority=priority,
        )
        for number, (name, count) in enumerate(zip(NODES, gpus, strict=False))
        if count
    ]


def moved(priority: int = 1000, nice: int = 300, gpus: int = 16) -> Job:
    """A job that an earlier version put back by its nice."""
    return make_job(1, gpus=gpus, nice=nice, priority=priority - nice, time_limit_s=10 * HOUR_S)


def short(job_id: int, priority: int = 900) -> Job:
    """A short job behind the moved one as submitted."""
    return make_job(job_id, gpus=2, priority=priority, time_limit_s=HOUR_S / 4)


def put_back(nice: int = 300, *, would_start_time: float | None = None) -> Lease:
    """The change of that job, which stays until it is due."""
    lease = intended(
        SetNice(job_id=1, before=0, after=nice),
        SINCE,
        after_s=2 * HOUR_S,
        added_delay_s=HOUR_S,
        job=moved(nice=0),
    )
    return replace(lease, state=LeaseState.OUT, would_start_time=would_start_time)


def watch(jobs: Sequence[Job], *leases: Lease, limits: Limits | None = None) -> tuple[Watched, ...]:
    """Watch the changed jobs of a queue."""
    return Cycle(limits=limits or Limits()).judge(make_snapshot(jobs), Memory(leases=leases)).watched


def test_gpus_of_jobs_that_passed_since_the_change_count_as_idle_for_what_would_have_been() -> None:
    passed = [
        make_job(7 + n, gpus=8, running_on=[NODES[n]], started_ago_s=60.0, time_limit_s=48 * HOUR_S, priority=999)
        for n in range(2)
    ]
    before = [replace(job, start_time=SINCE - 60.0) for job in passed]
    ahead = [replace(job, priority=1001) for job in passed]
    waiting = [*running(0, 0, 8, 8), moved(), short(2), short(3)]

    assert watch([*waiting, *passed], put_back())[0].would_start_time == TAKEN_AT
    assert watch([*waiting, *before], put_back())[0].would_start_time is None
    assert watch([*waiting, *ahead], put_back())[0].would_start_time is None


def test_job_of_the_same_priority_that_stands_ahead_by_its_submission_has_not_passed() -> None:
    started = make_job(7, gpus=8, running_on=["n01"], started_ago_s=60.0, priority=1000)
    earlier, later = (replace(started, submit_time=moved().submit_time + since_s) for since_s in (-60.0, 60.0))
    waiting = [*running(0, 8, 8, 8), moved(gpus=8), short(2), short(3)]

    assert [watch([*waiting, other], put_back())[0].would_start_time for other in (earlier, later)] == [None, TAKEN_AT]


@pytest.mark.parametrize(("priority", "would_start_time"), [(1539, TAKEN_AT), (1541, None)])
def test_priorities_that_move_with_age_are_compared_at_the_start_of_the_job_that_passed(
    priority: int, would_start_time: float | None
) -> None:
    # The changed job had 1000 points ten minutes ago and has 1600 now; the others started a minute ago, beside 1540.
    passed = [
        make_job(7 + n, gpus=8, running_on=[NODES[n]], started_ago_s=60.0, time_limit_s=48 * HOUR_S, priority=priority)
        for n in range(2)
    ]
    waiting = [*running(0, 0, 8, 8), moved(priority=1600), short(2, priority=1500), short(3, priority=1500)]

    assert watch([*waiting, *passed], put_back())[0].would_start_time == would_start_time


@pytest.mark.parametrize(("partition", "would_start_time"), [("gpu", TAKEN_AT), ("other", None)])
def test_jobs_that_started_in_the_line_of_the_changed_job_alone_can_have_passed_it(
    partition: str, would_start_time: float | None
) -> None:
    passed = [
        make_job(7 + n, gpus=8, running_on=[NODES[n]], started_ago_s=60.0, priority=100, partitions=(partition,))
        for n in range(2)
    ]

    found = watch([*running(0, 0, 8, 8), moved(), *passed], put_back())

    assert found[0].would_start_time == would_start_time


@pytest.mark.parametrize(("late_s", "over"), [(3 * HOUR_S - 1.0, set()), (3 * HOUR_S, {Lever.NICE})])
def test_change_is_over_once_half_of_the_bound_is_waited(late_s: float, over: set[Lever]) -> None:
    jobs = [*running(8, 8, 8, 8), moved(), short(2), short(3)]

    assert watch(jobs, put_back(would_start_time=TAKEN_AT - late_s))[0].over == over


def test_delay_timer_waits_although_its_gang_would_start_but_not_beyond_half_of_the_bound() -> None:
    action = SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))
    lease = replace(put_back(would_start_time=SINCE), action=action, undo=action.swapped())
    gang = make_job(1, gang=make_gang(8, nodes_min=1, nodes_max=1))
    jobs = [*running(6, 6, 6, 6), gang]

    assert watch(jobs, lease)[0].over == frozenset()
    assert watch(jobs, lease, limits=Limits(max_added_delay_s=1200.0))[0].over == {Lever.NODE_RANGE}


def test_job_whose_change_went_back_is_watched_until_it_starts() -> None:
    ended = put_back().ended(Ending.TAKEN_BACK, TAKEN_AT - 60.0)
    free, full = running(0, 0, 8, 8), running(8, 8, 8, 8)
    waiting = moved(nice=0)

    assert watch([*full, waiting], ended) == (Watched(job_id=1, would_start_time=None, over=frozenset()),)
    assert watch([*free, waiting], ended) == (Watched(job_id=1, would_start_time=TAKEN_AT, over=frozenset()),)
    assert watch([*free, waiting], replace(ended, start_time=TAKEN_AT - 10.0)) == ()
    assert watch([*free, make_job(1, gpus=16, running_on=["n01", "n02"])], ended) == ()


def delayed() -> tuple[Lease, list[Job]]:
    """The change of a job that would have started four hours ago, and a queue in which another stands before it."""
    lease = replace(put_back(would_start_time=TAKEN_AT - 4 * HOUR_S), applied_time=TAKEN_AT - 5 * HOUR_S)
    jobs = [*running(8, 8, 8, 8), moved(nice=0), make_job(9, gpus=8, priority=1400)]
    return lease.ended(Ending.TAKEN_BACK, TAKEN_AT - 60.0), jobs


def test_delayed_job_is_lifted_above_all_others_once() -> None:
    ended, jobs = delayed()
    rival = jobs[-1]

    # No other job is lifted at this fairness.
    alone = Cycle(limits=Limits(fairness="user"))

    (lift,) = alone.judge(make_snapshot(jobs), Memory(leases=(ended,))).recommendations
    first = alone.judge(make_snapshot([*jobs[:-1], replace(rival, priority=900)]), Memory(leases=(ended,)))
    lifted = replace(intended(lift.action, TAKEN_AT - 60.0), state=LeaseState.OUT)
    again = alone.judge(make_snapshot([*jobs[:-2], moved(nice=-407), rival]), Memory(leases=(ended, lifted)))

    assert lift.reason is Reason.DELAYED_BY_ADVICE
    assert lift.action == SetNice(job_id=1, before=0, after=-407)
    assert isinstance(lift.facts, DelayedByAdvice)
    assert (lift.facts.priority, lift.facts.priority_after, lift.facts.jobs_passed) == (1000, 1407, 1)
    assert first.recommendations == again.recommendations == ()
    assert Cycle(limits=Limits(nice_min=0)).judge(make_snapshot(jobs), Memory(leases=(ended,))).recommendations == ()


def test_gang_lifted_before_it_was_late_is_lifted_once_more() -> None:
    ended, jobs = delayed()
    alone = Cycle(limits=Limits(fairness="user"))
    before = replace(intended(SetNice(job_id=1, before=0, after=-300), TAKEN_AT - 4.5 * HOUR_S), state=LeaseState.OUT)
    queue = [*jobs[:-2], replace(jobs[-2], nice=-300), jobs[-1]]

    (lift,) = alone.judge(make_snapshot(queue), Memory(leases=(ended, before))).recommendations
    since = replace(before, applied_time=TAKEN_AT - 3.5 * HOUR_S)

    assert lift.reason is Reason.DELAYED_BY_ADVICE
    assert isinstance(lift.action, SetNice)
    assert lift.action.before == -300 > lift.action.after
    assert isinstance(lift.facts, DelayedByAdvice)
    assert lift.facts.priority_after == lift.facts.priority - 300 - lift.action.after
    assert alone.judge(make_snapshot(queue), Memory(leases=(ended, since))).recommendations == ()


def test_delayed_job_gets_one_lift_beside_those_of_others() -> None:
    ended, jobs = delayed()
    short_one = make_job(30, gpus=1, priority=700, time_limit_s=HOUR_S / 4)

    changes = Cycle().judge(make_snapshot([*jobs, short_one]), Memory(leases=(ended,))).recommendations

    assert {change.job_id: change.reason for change in changes} == {
        1: Reason.DELAYED_BY_ADVICE,
        30: Reason.SHORT_WORK_FIRST,
    }


@settings(deadline=None, max_examples=examples(60))
@given(seed=st.integers(0, 100_000))
def test_planned_start_of_a_job_does_not_depend_on_which_others_change(seed: int) -> None:
    case = Case(snapshot=random_queues.snapshot(np.random.default_rng(seed)))
    changes = [
        make_recommendation(SetNice(job_id=job.job_id, before=job.nice, after=job.nice + 1), delay_s=60.0)
        for job in case.queue.jobs
    ]

    together = with_planned_starts(Plan(recommendations=tuple(changes)), case).recommendations
    alone = [with_planned_starts(Plan(recommendations=(change,)), case).recommendations[0] for change in changes[::3]]

    assert alone == list(together[::3])
