"""What changed jobs would have had as submitted, and when their changes no longer serve."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from advisor.cycle import Cycle
from advisor.domain.actions import Lever, NodeRange, Reason, SetNice, SetNodeRange
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.memory import Memory
from advisor.domain.plan import Recommendation
from advisor.planning.counterfactual import Watched
from advisor.settings import Limits
from tests.builders import HOUR_S, TAKEN_AT, make_config, make_gang, make_job, make_snapshot

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
    """The job that was put back by its nice."""
    return make_job(1, gpus=gpus, nice=nice, priority=priority - nice, time_limit_s=10 * HOUR_S)


def short(job_id: int, priority: int = 900) -> Job:
    """A short job behind the moved one as submitted."""
    return make_job(job_id, gpus=2, priority=priority, time_limit_s=HOUR_S / 4)


def put_back(nice: int = 300, *, serves: tuple[int, ...] = (2, 3), would_start_time: float | None = None) -> Lease:
    """The change of the moved job."""
    lease = intended(
        SetNice(job_id=1, before=0, after=nice),
        SINCE,
        after_s=2 * HOUR_S,
        added_delay_s=HOUR_S,
        job=moved(nice=0),
        serves=serves,
    )
    return replace(lease, state=LeaseState.OUT, would_start_time=would_start_time)


def watch(jobs: Sequence[Job], *leases: Lease, limits: Limits | None = None) -> tuple[Watched, ...]:
    """Watch the changed jobs of a queue."""
    return Cycle(limits=limits or Limits()).judge(make_snapshot(jobs), Memory(leases=leases)).watched


def test_change_serves_while_the_jobs_that_it_let_ahead_wait_and_no_other_stands_before() -> None:
    jobs = [*running(8, 8, 8, 8), moved(), short(2), short(3)]

    assert watch(jobs, put_back()) == (Watched(job_id=1, would_start_time=None, over=frozenset()),)


def test_change_is_over_once_all_jobs_that_it_let_ahead_have_started_or_left() -> None:
    started = make_job(2, gpus=2, running_on=["n01"], started_ago_s=10.0, time_limit_s=HOUR_S, priority=900)
    full = running(6, 8, 8, 8)

    assert watch([*full, started, moved()], put_back())[0].over == {Lever.NICE: Over.SERVED}
    assert watch([*full, started, moved(), short(3)], put_back())[0].over == frozenset()


def test_change_is_over_once_the_job_would_start_as_submitted() -> None:
    (seen,) = watch([*running(0, 0, 8, 8), moved(), short(2), short(3)], put_back())

    assert (seen.would_start_time, seen.over) == (TAKEN_AT, {Lever.NICE: Over.WOULD_START})


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
    waiting = [*running(0, 8, 8, 8), moved(), short(2), short(3)]

    assert watch([*waiting, earlier], put_back())[0].over == frozenset()
    assert watch([*waiting, later], put_back())[0].over == {Lever.NICE: Over.UNCOUNTED}


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


def test_change_is_over_once_a_job_that_was_not_counted_stands_before() -> None:
    jobs = [*running(8, 8, 8, 8), moved(), short(2), short(3)]

    behind, between, ahead = (make_job(9, gpus=8, priority=priority) for priority in (600, 800, 1100))

    assert watch([*jobs, behind], put_back())[0].over == frozenset()
    assert watch([*jobs, between], put_back())[0].over == {Lever.NICE: Over.UNCOUNTED}
    assert watch([*jobs, ahead], put_back())[0].over == frozenset()


def test_job_below_all_that_are_planned_goes_back() -> None:
    many = [make_job(1000 + n, gpus=8, priority=950 - n) for n in range(200)]
    pinned = replace(moved(nice=999), priority=1)

    (seen,) = watch([*running(8, 8, 8, 8), pinned, short(2), *many], put_back(999))

    assert seen.over == {Lever.NICE: Over.UNCOUNTED}


@pytest.mark.parametrize(("late_s", "over"), [(3 * HOUR_S - 1.0, {}), (3 * HOUR_S, {Lever.NICE: Over.HALF_BOUND})])
def test_change_is_over_once_half_of_the_bound_is_waited(late_s: float, over: dict[Lever, Over]) -> None:
    jobs = [*running(8, 8, 8, 8), moved(), short(2), short(3)]

    assert watch(jobs, put_back(would_start_time=TAKEN_AT - late_s))[0].over == over


def test_delay_timer_waits_although_its_gang_would_start_but_not_beyond_half_of_the_bound() -> None:
    action = SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))
    lease = replace(put_back(serves=(), would_start_time=SINCE), action=action, undo=action.swapped())
    gang = make_job(1, gang=make_gang(8, nodes_min=1, nodes_max=1))
    jobs = [*running(6, 6, 6, 6), gang]

    assert watch(jobs, lease)[0].over == frozenset()
    assert watch(jobs, lease, limits=Limits(max_added_delay_s=1200.0))[0].over == {Lever.NODE_RANGE: Over.HALF_BOUND}


def test_job_whose_change_went_back_is_watched_until_it_starts() -> None:
    ended = put_back().ended(Ending.TAKEN_BACK, TAKEN_AT - 60.0)
    free, full = running(0, 0, 8, 8), running(8, 8, 8, 8)
    waiting = moved(nice=0)

    assert watch([*full, waiting], ended) == (Watched(job_id=1, would_start_time=None, over=frozenset()),)
    assert watch([*free, waiting], ended) == (Watched(job_id=1, would_start_time=TAKEN_AT, over=frozenset()),)
    assert watch([*free, waiting], replace(ended, start_time=TAKEN_AT - 10.0)) == ()
    assert watch([*free, make_job(1, gpus=16, running_on=["n01", "n02"])], ended) == ()


def test_plan_states_when_the_job_starts_as_submitted_and_behind_those_it_lets_ahead() -> None:
    full = running(8, 8, 8, 8, left_s=2 * HOUR_S)
    long = make_job(1, gpus=16, priority=1000, time_limit_s=40 * HOUR_S)
    shorts = [short(n) for n in range(2, 12)]

    (change,) = Cycle().judge(make_snapshot([*full, long, *shorts])).recommendations
    slurms_plan = replace(long, start_time=TAKEN_AT + HOUR_S)
    (by_slurm,) = Cycle().judge(make_snapshot([*full, slurms_plan, *shorts])).recommendations

    assert change.serves == tuple(range(2, 12))
    assert (change.planned_start, change.latest_start) == (TAKEN_AT + 2 * HOUR_S, TAKEN_AT + 2.25 * HOUR_S)
    assert by_slurm.planned_start == TAKEN_AT + HOUR_S


def moves_of(
    jobs: Sequence[Job], *leases: Lease, levers: frozenset[Lever] = frozenset({Lever.NICE})
) -> dict[int, Recommendation]:
    """Map jobs that step back to their changes, refused ones among them."""
    judged = Cycle(levers=levers).judge(make_snapshot(jobs), Memory(leases=leases)).judged
    return {change.job_id: change for change in judged}


def test_plan_counts_gpus_of_one_node_together() -> None:
    on_one_node = make_gang(8, nodes_max=1)
    # Half of each node comes free in an hour, and the other halves in two.
    halves = [
        *running(4, 4, 4, 4),
        *(replace(job, job_id=job.job_id + 10) for job in running(4, 4, 4, 4, left_s=2 * HOUR_S)),
    ]
    long = make_job(1, gang=on_one_node, priority=1000, time_limit_s=40 * HOUR_S)
    shorts = [make_job(n, gang=on_one_node, priority=900, time_limit_s=HOUR_S / 4) for n in range(2, 12)]

    change = moves_of([*halves, long, *shorts])[1]

    # Ten follow one another on four nodes.
    assert (change.planned_start, change.latest_start) == (TAKEN_AT + 2 * HOUR_S, TAKEN_AT + 2.5 * HOUR_S)


def test_plan_counts_a_job_that_was_put_back_where_it_can_return_to_at_any_time() -> None:
    full = running(8, 8, 8, 8, left_s=2 * HOUR_S)
    long = make_job(20, gpus=32, priority=1100, time_limit_s=40 * HOUR_S)
    shorts = [short(n, priority=600) for n in range(2, 12)]
    # The job that was put back before returns to 1000, between the long job and its new place.
    before = moved(gpus=32, nice=500)

    alone = moves_of([*full, long, *shorts])[20]
    beside = moves_of([*full, long, before, *shorts], put_back(500, serves=tuple(range(2, 12))))[20]

    assert alone.latest_start == TAKEN_AT + 2.25 * HOUR_S
    assert beside.latest_start == TAKEN_AT + 12.25 * HOUR_S
    assert (alone.refused_by, beside.refused_by) == (None, "starts_within_bound")


def test_job_that_would_start_now_is_not_put_back_again_in_the_same_round() -> None:
    back = replace(put_back(), applied_time=TAKEN_AT - 3 * HOUR_S).ended(Ending.TAKEN_BACK, TAKEN_AT - HOUR_S)
    waiting = make_job(1, gpus=8, priority=1000, time_limit_s=40 * HOUR_S)
    jobs = [*running(0, 8, 8, 8, started_ago_s=4 * HOUR_S), waiting, *[short(n) for n in range(2, 12)]]

    def refused_by(started_ago_s: float) -> str | None:
        passed = make_job(70, gpus=8, running_on=["n01"], started_ago_s=started_ago_s, priority=999)
        return moves_of([*jobs, passed], back)[1].refused_by

    assert refused_by(2 * HOUR_S) == "late_job_not_put_back"
    assert refused_by(HOUR_S / 2) != "late_job_not_put_back"


def test_plan_counts_a_job_put_back_that_stands_beside_the_new_place_as_submitted() -> None:
    full = running(8, 8, 8, 8, left_s=2 * HOUR_S)
    long = make_job(20, gpus=32, priority=1100, time_limit_s=40 * HOUR_S)
    shorts = [short(n, priority=600) for n in range(2, 12)]
    alone = moves_of([*full, long, *shorts])[20]
    assert isinstance(alone.action, SetNice)
    new_place = 1100 - alone.action.after

    before = moved(gpus=32, priority=new_place, nice=new_place - 1)
    lease = put_back(new_place - 1, serves=tuple(range(2, 12)))

    assert moves_of([*full, long, before, *shorts], lease)[20].latest_start == TAKEN_AT + 12.25 * HOUR_S


def test_no_job_steps_back_beyond_the_depth_of_backfill() -> None:
    full = running(8, 8, 8, 8, left_s=2 * HOUR_S)
    long = make_job(1, gpus=16, priority=1000, time_limit_s=40 * HOUR_S)
    shorts = [short(n, priority=900 - 60 * n) for n in range(2, 12)]

    def moved_by(depth: int) -> list[int]:
        config = make_config(scheduler_parameters={"bf_max_job_test": str(depth)})
        record = Cycle().judge(make_snapshot([*full, long, *shorts], config=config))
        return [len(change.serves) for change in record.recommendations]

    assert (moved_by(11), moved_by(8), moved_by(1)) == ([10], [7], [])


def delayed() -> tuple[Lease, list[Job]]:
    """The change of a job that would have started four hours ago, and a queue in which another stands before it."""
    lease = replace(put_back(would_start_time=TAKEN_AT - 4 * HOUR_S), applied_time=TAKEN_AT - 5 * HOUR_S)
    jobs = [*running(8, 8, 8, 8), moved(nice=0), make_job(9, gpus=8, priority=1400)]
    return lease.ended(Ending.TAKEN_BACK, TAKEN_AT - 60.0), jobs


def test_delayed_job_is_lifted_above_all_others_once() -> None:
    ended, jobs = delayed()
    rival = jobs[-1]

    (lift,) = Cycle().judge(make_snapshot(jobs), Memory(leases=(ended,))).recommendations
    first = Cycle().judge(make_snapshot([*jobs[:-1], replace(rival, priority=900)]), Memory(leases=(ended,)))
    lifted = replace(intended(lift.action, TAKEN_AT - 60.0), state=LeaseState.OUT)
    again = Cycle().judge(make_snapshot([*jobs[:-2], moved(nice=-407), rival]), Memory(leases=(ended, lifted)))

    assert lift.reason is Reason.DELAYED_BY_ADVICE
    assert lift.action == SetNice(job_id=1, before=0, after=-407)
    assert first.recommendations == again.recommendations == ()
    assert Cycle(limits=Limits(nice_min=0)).judge(make_snapshot(jobs), Memory(leases=(ended,))).recommendations == ()
