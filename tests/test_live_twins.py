"""The twins: the jobs that both clusters get, what is read from squeue, and that each check can fail."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.domain.actions import NodeRange, SetNice, SetNodeRange, SetSwitches
from advisor.domain.gang import SwitchRequest
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from tools.live_twins.both_clusters import Pair, Twin
from tools.live_twins.checks import (
    Delay,
    DelaySide,
    TwinFacts,
    differences,
    faults,
    interval,
    lateness,
    paired_delay,
    purpose_gone,
    touched_by_lever,
)
from tools.live_twins.twin_actors import AttackPlace, options_for
from tools.live_twins.twin_jobs import ATTACKER, GPUS, attack, draw_requests, work_s
from tools.stage.watch import LiveStay, stay_of

UNTIL, BOUND_S, TOLERANCE_S = 1000.0, 180.0, 10.0
REQUEST = draw_requests(1, 60.0)[0]


def pair(job_id: int, plain: LiveStay, advised: LiveStay, *, user: str = "games") -> Pair:
    """A job that has other ids on the two clusters."""
    return Pair(
        request=replace(REQUEST, name=f"job-{job_id}", user=user),
        submit_time=0.0,
        job_id={Twin.PLAIN: job_id + 100, Twin.ADVISED: job_id},
        stay={Twin.PLAIN: plain, Twin.ADVISED: advised},
    )


def ran(start_time: float, state: str = "COMPLETED") -> LiveStay:
    return LiveStay(start_time=start_time, end_time=start_time + 50.0, state=state, nodes="n01")


WAITS, GONE = LiveStay(), LiveStay(end_time=700.0, state="CANCELLED")


def lift(job_id: int = 2, **fields: Any) -> Lease:
    """A nice that puts a job ahead of others and ended with its start at 149."""
    lease = intended(SetNice(job_id=job_id, before=0, after=-17), 100.0, after_s=600.0)
    closed = replace(lease, state=LeaseState.OUT, ending=Ending.NO_LONGER_PENDING, ended_time=150.0)
    return replace(closed, **fields)


def leaf(job_id: int = 1, **fields: Any) -> Lease:
    """A wait for one leaf switch, taken back at 150."""
    action = SetSwitches(job_id=job_id, before=None, after=SwitchRequest(count=1, max_wait_s=60.0))
    lease = intended(action, 100.0, after_s=60.0, added_delay_s=150.0, planned_start=110.0)
    closed = replace(lease, state=LeaseState.OUT, ending=Ending.TAKEN_BACK, ended_time=150.0)
    return replace(closed, **fields)


def timer(job_id: int = 3, **fields: Any) -> Lease:
    """A node range that ended with its job's start at 200."""
    action = SetNodeRange(job_id=job_id, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))
    lease = intended(action, 150.0, after_s=60.0, added_delay_s=60.0, planned_start=160.0)
    closed = replace(lease, state=LeaseState.OUT, ending=Ending.NO_LONGER_PENDING, ended_time=202.0)
    return replace(closed, **fields)


PAIRS = (pair(1, ran(110.0), ran(200.0)), pair(2, ran(300.0), ran(149.0)), pair(3, ran(180.0), ran(200.0)))


def facts(*, pairs: tuple[Pair, ...] = PAIRS, leases: tuple[Lease, ...] = (leaf(), lift())) -> TwinFacts:
    """A run with a round every 3 s in which every promise was kept."""
    return TwinFacts(
        pairs=pairs,
        leases=leases,
        rounds=tuple(np.arange(0.0, UNTIL, 3.0)),
        until=UNTIL,
        bound_s=BOUND_S,
        tolerance_s=TOLERANCE_S,
    )


def test_kept_promises_are_no_fault() -> None:
    assert list(faults(facts())) == []


LATE_ON_BOTH = pair(1, ran(280.0), ran(291.0))
STILL_HELD = timer(ending=None, ended_time=None, due_time=None)
KILLED = pair(4, ran(0.0), ran(0.0, "TIMEOUT"))
BROKEN = {
    "no job was changed by a lift": facts(leases=(leaf(),)),
    "no job was changed by a lift, ": facts(leases=(lift(ending=Ending.NOT_APPLIED), leaf())),
    "no job was changed by a delay timer": facts(leases=(lift(),)),
    "job-1 started 181 s later than due": facts(pairs=(LATE_ON_BOTH, *PAIRS[1:])),
    "job-3 started >=840 s later than due": facts(
        pairs=(*PAIRS[:2], pair(3, WAITS, WAITS)),
        leases=(leaf(), lift(), STILL_HELD),
    ),
    "the change of switches of job-1 was out for 12 s and 4": facts(leases=(leaf(ended_time=172.0), lift())),
    "the change of switches of job-1 was out": facts(leases=(leaf(ending=None, ended_time=None), lift())),
    "job-4 ended as TIMEOUT on the advised": facts(pairs=(*PAIRS, KILLED)),
}


@pytest.mark.parametrize(("fault", "run"), BROKEN.items(), ids=BROKEN)
def test_each_broken_promise_is_a_fault(fault: str, run: TwinFacts) -> None:
    (only,) = faults(run)

    assert only.startswith(fault)


def test_intent_without_effect_is_not_out() -> None:
    intent = lift(job_id=1, state=LeaseState.INTENDED, ended_time=700.0)

    assert list(faults(facts(leases=(leaf(), lift(), intent)))) == []


def test_lifted_job_that_waits_on_the_plain_cluster_alone_is_no_fault_and_neither_is_a_cancelled_attack() -> None:
    pairs = (PAIRS[0], pair(2, WAITS, ran(149.0)), PAIRS[2], pair(4, GONE, GONE, user=ATTACKER))

    assert list(faults(facts(pairs=pairs))) == []


@pytest.mark.parametrize(
    ("plain", "advised", "delay"),
    [
        (ran(100.0), ran(130.0), Delay(seconds=30.0)),
        (ran(100.0), WAITS, Delay(seconds=900.0, side=DelaySide.LEAST)),
        (ran(100.0), GONE, Delay(seconds=600.0, side=DelaySide.LEAST)),
        (WAITS, ran(100.0), Delay(seconds=-900.0, side=DelaySide.MOST)),
        (WAITS, WAITS, None),
    ],
)
def test_time_so_far_counts_for_a_job_that_has_not_started(
    plain: LiveStay, advised: LiveStay, delay: Delay | None
) -> None:
    assert paired_delay(pair(1, plain, advised), UNTIL) == delay


def test_job_was_due_when_planned_or_when_it_would_have_started_if_that_is_later() -> None:
    job = pair(1, ran(110.0), ran(200.0))

    assert lateness(leaf(), job, UNTIL) == Delay(seconds=90.0)
    assert lateness(leaf(would_start_time=150.0), job, UNTIL) == Delay(seconds=50.0)
    assert lateness(leaf(would_start_time=90.0), job, UNTIL) == Delay(seconds=90.0)
    assert lateness(leaf(planned_start=None), job, UNTIL) is None


def test_purpose_is_gone_with_the_start_of_the_job_or_the_time() -> None:
    job = pair(2, ran(0.0), ran(200.0))

    assert purpose_gone(lift(due_time=None), {2: job}) == 200.0
    assert purpose_gone(lift(due_time=160.0), {2: job}) == 160.0
    assert purpose_gone(lift(due_time=None), {2: pair(2, WAITS, WAITS)}) is None


def test_jobs_are_counted_once_for_each_lever() -> None:
    assert touched_by_lever([leaf(), leaf(), lift(), timer(ending=Ending.NOT_APPLIED)]) == {
        "nice": 1,
        "switches": 1,
        "switches, can delay": 1,
    }


def test_differences_leave_out_attacks_and_jobs_that_started_on_neither() -> None:
    jobs = [pair(n, ran(100.0), ran(100.0 + 20.0 * n)) for n in range(4)]
    others = [pair(8, WAITS, WAITS), pair(9, ran(0.0), WAITS, user=ATTACKER)]

    seen = differences([*jobs, *others, pair(7, ran(990.0), WAITS)], UNTIL, tolerance_s=15.0)

    assert (seen.jobs, seen.censored, seen.on_neither) == (5, 1, 1)
    assert (seen.mean_s, seen.worst_s, seen.later, seen.earlier) == (26.0, 60.0, 3, 0)
    assert seen.quantiles_s[100] == 60.0


def test_interval_of_the_mean_covers_it_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    runs = [interval(rng.normal(5.0, 20.0, 100)) for _ in range(400)]

    covered = sum(low <= 5.0 <= high for low, high in runs)

    assert 0.92 * 400 <= covered <= 0.98 * 400
    assert np.isnan(interval(np.array([1.0, 2.0]))).all()


def test_seed_decides_the_jobs_which_come_in_order_and_end_within_their_limits() -> None:
    first, again, other = draw_requests(1, 360.0), draw_requests(1, 360.0), draw_requests(2, 360.0)

    assert first == again
    assert first != other
    assert [request.submit_s for request in first] == sorted(request.submit_s for request in first)
    assert len({request.name for request in first}) == len(first)
    assert all(0.0 < request.run_s < request.limit_s for request in first)
    assert len({request.user for request in first}) > 2
    # More work than the GPUs can do while it arrives, so that a queue is left.
    assert work_s(first) > 360.0 * GPUS


def test_attack_stands_right_behind_the_changed_job_as_submitted_or_behind_all() -> None:
    lease = leaf(priority=10_590)

    assert options_for(AttackPlace.BETWEEN, lease) == ("--partition=rush", "--nice=89411")
    assert options_for(AttackPlace.LAST, lease) == ()
    assert attack(0, 16, 0.0, ()).gpus == 16
    assert attack(1, 1, 0.0, ("--nice=5",)).options[-1] == "--nice=5"


@pytest.mark.parametrize(
    ("row", "stay"),
    [
        (("PENDING", "900", "960", ""), LiveStay()),
        (("RUNNING", "900", "960", "n01"), LiveStay(start_time=900.0, state="RUNNING", nodes="n01")),
        (("CANCELLED", "950", "950", ""), LiveStay(end_time=950.0, state="CANCELLED")),
        (("TIMEOUT", "900", "960", "n01"), LiveStay(start_time=900.0, end_time=960.0, state="TIMEOUT", nodes="n01")),
        (("REQUEUE_HOLD", "N/A", "N/A", ""), LiveStay(state="REQUEUE_HOLD")),
    ],
)
def test_planned_start_of_a_pending_job_and_the_end_of_one_that_never_ran_are_no_starts(
    row: tuple[str, str, str, str], stay: LiveStay
) -> None:
    assert stay_of(*row) == stay
