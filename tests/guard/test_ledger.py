"""What advice has cost, from what was lent."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.actions import NodeRange, SetNice, SetNodeList, SetNodeRange
from advisor.domain.lease import Ending, Lease
from advisor.guard.circumstances import circumstances, delays_left_s
from advisor.guard.ledger import NOTHING_BOOKED, booked_s, ledger_of, realised_s
from advisor.guard.rules import permitted
from advisor.settings import Limits
from tests.builders import HOUR_S, TAKEN_AT, make_job, make_snapshot
from tests.guard.proposals import PLAIN, lent


def delayed(ago_s: float = HOUR_S, *, due_ago_s: float | None = None, delay_s: float = 900.0, **more: Any) -> Lease:
    """A change to a job that, as submitted, would have started some time ago, or later if that is negative."""
    would_start_time = None if due_ago_s is None else TAKEN_AT - due_ago_s
    started = more.pop("started_ago_s", None)
    start_time = None if started is None else TAKEN_AT - started
    return replace(lent(ago_s=ago_s, delay_s=delay_s, **more), would_start_time=would_start_time, start_time=start_time)


BACK, STARTED = Ending.TAKEN_BACK, Ending.NO_LONGER_PENDING


@pytest.mark.parametrize(
    ("lease", "realised", "booked"),
    [
        pytest.param(delayed(due_ago_s=-600.0), 0.0, 900.0, id="out, its start not due yet"),
        pytest.param(delayed(due_ago_s=300.0), 300.0, 900.0, id="out, and late"),
        pytest.param(delayed(due_ago_s=2000.0), 2000.0, 2000.0, id="out, later than expected"),
        pytest.param(delayed(due_ago_s=2000.0, ending=BACK, ended_ago_s=1900.0), 2000.0, 2000.0, id="back, it waits"),
        pytest.param(
            delayed(due_ago_s=2000.0, ending=BACK, started_ago_s=500.0), 1500.0, 1500.0, id="back, and started"
        ),
        pytest.param(delayed(due_ago_s=-600.0, ending=BACK, started_ago_s=0.0), 0.0, 0.0, id="started before its plan"),
        pytest.param(delayed(ending=BACK), 0.0, 0.0, id="back, would not have started either"),
        pytest.param(delayed(due_ago_s=7200.0), 3600.0, 3600.0, id="not before the change"),
        pytest.param(
            replace(delayed(due_ago_s=2000.0), overruled_time=TAKEN_AT - 1500.0), 500.0, 500.0, id="overruled"
        ),
    ],
)
def test_books_what_was_realised_and_what_an_open_change_can_add(lease: Lease, realised: float, booked: float) -> None:
    assert (realised_s([lease], TAKEN_AT), booked_s([lease], TAKEN_AT)) == (realised, booked)


def test_a_change_that_was_never_applied_or_delays_nothing_is_not_booked() -> None:
    never, harmless = delayed(due_ago_s=300.0, ending=Ending.NOT_APPLIED), delayed(due_ago_s=300.0, delay_s=0.0)

    assert ledger_of([never, harmless], TAKEN_AT, Limits()).delay_s_by_job == {}


def test_bound_of_a_user_below_that_of_a_job_is_what_is_left_of_the_first_delay() -> None:
    limits = Limits(max_added_delay_s=2 * HOUR_S, max_user_delay_s=HOUR_S, max_account_delay_s=9 * HOUR_S)
    snapshot = make_snapshot([make_job(1)])

    assert delays_left_s(snapshot, circumstances(snapshot, limits)) == {1: HOUR_S}


def test_jobs_that_can_be_lifted_are_those_that_wait_for_our_changes_and_that_no_rule_keeps_as_they_are() -> None:
    jobs = [make_job(1), make_job(2), make_job(3, held=True)]
    late, not_late, held = (
        replace(lent(job, ending=BACK, ended_ago_s=60.0), would_start_time=TAKEN_AT - late_s)
        for job, late_s in zip(jobs, (300.0, 0.0, 300.0), strict=True)
    )
    snapshot = make_snapshot(jobs)

    permits = permitted(snapshot, circumstances(snapshot, Limits(), leases=[late, not_late, held]))

    assert permits.late_s == {1: 300.0}


LIFT = SetNice(job_id=1, before=0, after=-5)


@pytest.mark.parametrize(
    ("lease", "rests"),
    [
        pytest.param(lent(action=LIFT, ending=BACK, ended_ago_s=60.0), False, id="its lift was taken back"),
        pytest.param(replace(lent(action=LIFT, ending=BACK, ended_ago_s=60.0), lost="4 to 8 GPUs"), True, id="lost"),
        pytest.param(lent(action=LIFT, ending=Ending.NOT_APPLIED, ended_ago_s=60.0), True, id="refused"),
        pytest.param(lent(ending=BACK, ended_ago_s=60.0), True, id="another change was taken back"),
    ],
)
def test_late_job_does_not_rest_after_its_lift_was_taken_back(lease: Lease, rests: bool) -> None:
    snapshot = make_snapshot([make_job(1)])
    others, late = (
        permitted(snapshot, circumstances(snapshot, Limits(), leases=[lease], overdue=frozenset(overdue)))
        for overdue in ((), (1,))
    )

    assert others.left_alone == {1: "cooldown_over"}
    assert late.left_alone == ({1: "cooldown_over"} if rests else {})


def test_two_changes_of_one_wait_book_its_realised_delay_once_and_what_the_open_one_can_add() -> None:
    first = delayed(due_ago_s=3000.0, ending=BACK, ended_ago_s=2900.0)
    second = delayed(600.0, due_ago_s=3000.0, delay_s=1000.0)

    assert booked_s([first, second], TAKEN_AT) == 3000.0 + (1000.0 - 600.0)


def test_the_delays_of_two_waits_of_a_requeued_job_add_up() -> None:
    first = delayed(9000.0, due_ago_s=8000.0, ending=BACK, ended_ago_s=7000.0, started_ago_s=7500.0)
    second = delayed(600.0, due_ago_s=200.0, delay_s=100.0)

    ledger = ledger_of([first, second], TAKEN_AT, Limits())

    assert ledger.delay_s_by_job == {1: 500.0 + 200.0}
    assert ledger.realised_s_by_job == {1: 200.0}


ONE_NODE = SetNodeRange(job_id=1, before=NodeRange(low=1, high=8), after=NodeRange(low=1, high=1))


@pytest.mark.parametrize(
    ("lease", "booked"),
    [
        pytest.param(delayed(due_ago_s=1000.0, ending=STARTED, started_ago_s=3400.0), 0.0, id="on one leaf switch"),
        pytest.param(delayed(due_ago_s=2000.0, ending=STARTED, started_ago_s=500.0), 1500.0, id="on several"),
        pytest.param(
            delayed(due_ago_s=2000.0, ending=STARTED, started_ago_s=500.0, action=ONE_NODE, due_after_s=3300.0),
            0.0,
            id="on one node",
        ),
        pytest.param(
            delayed(due_ago_s=2000.0, ending=BACK, started_ago_s=500.0, action=ONE_NODE, due_after_s=600.0),
            1500.0,
            id="on several nodes",
        ),
        pytest.param(
            delayed(due_ago_s=2000.0, ending=STARTED, started_ago_s=500.0, action=ONE_NODE.swapped()),
            1500.0,
            id="its request was widened",
        ),
    ],
)
def test_gang_that_got_the_place_it_waited_for_is_not_booked_as_delayed(lease: Lease, booked: float) -> None:
    ledger = ledger_of([lease], TAKEN_AT, Limits())

    assert ledger.delay_s_by_user == ({"alice": booked} if booked else {})


def test_costs_are_added_up_by_job_user_and_account() -> None:
    bob = replace(PLAIN, job_id=2, user="bob")
    started = delayed(due_ago_s=20.0, delay_s=20.0, ending=BACK, started_ago_s=0.0)
    leases = [lent(delay_s=100.0), started, lent(bob, delay_s=3.0)]

    ledger = ledger_of(leases, TAKEN_AT, Limits())

    assert ledger.delay_s_by_job == {1: 120.0, 2: 3.0}
    assert ledger.delay_s_by_user == {"alice": 120.0, "bob": 3.0}
    assert ledger.delay_s_by_account == {"lab": 123.0}


def test_user_is_charged_until_a_window_after_the_job_started_and_the_job_for_good() -> None:
    limits = Limits(fairness_window_s=HOUR_S)
    inside, outside = (
        ledger_of([delayed(9e4, due_ago_s=600.0 + ago_s, ending=BACK, started_ago_s=ago_s)], TAKEN_AT, limits)
        for ago_s in (HOUR_S - 1, HOUR_S)
    )

    assert (inside.delay_s_by_job, inside.delay_s_by_user) == ({1: 600.0}, {"alice": 600.0})
    assert (outside.delay_s_by_job, outside.delay_s_by_user) == ({1: 600.0}, {})


def test_who_is_not_known_has_no_sum() -> None:
    nobody = make_job(1, user="", account="")

    ledger = ledger_of([lent(nobody)], TAKEN_AT, Limits())
    around = circumstances(make_snapshot([nobody]), Limits(), leases=[lent(nobody)])

    assert (ledger.delay_s_by_user, ledger.delay_s_by_account) == ({}, {})
    assert around.user_delay_left_s(nobody) == around.account_delay_left_s(nobody) == float("inf")


def test_only_lists_of_nodes_that_were_applied_count_as_named() -> None:
    named = SetNodeList(job_id=1, before=(), after=("n01",))
    leases = [
        lent(action=named, ending=BACK),
        lent(action=named),
        lent(action=named, ending=Ending.NOT_APPLIED),
        lent(),
    ]

    assert ledger_of(leases, TAKEN_AT, Limits()).named_by_job == {1: 2}


def test_nothing_lent_is_nothing_booked() -> None:
    assert ledger_of([], TAKEN_AT, Limits()) == NOTHING_BOOKED


@pytest.mark.parametrize(
    ("limits", "left_s"),
    [
        pytest.param(Limits(), {1: 5.0 * HOUR_S}, id="by job"),
        pytest.param(Limits(max_user_delay_s=2 * HOUR_S), {1: HOUR_S, 2: HOUR_S, 3: 2 * HOUR_S}, id="by user"),
        pytest.param(Limits(max_account_delay_s=HOUR_S / 2), {1: 0.0, 2: 0.0, 3: 0.0}, id="by account"),
    ],
)
def test_planner_is_told_how_much_longer_jobs_may_be_delayed(limits: Limits, left_s: dict[int, float]) -> None:
    jobs = [PLAIN, make_job(2), make_job(3, user="bob"), make_job(4, user="eve", running_on=["n01"])]
    snapshot = make_snapshot(jobs)

    around = circumstances(snapshot, limits, leases=[lent(delay_s=HOUR_S)])

    assert delays_left_s(snapshot, around) == left_s


def test_planner_is_told_of_nobody_while_the_full_bound_is_left_for_all() -> None:
    snapshot = make_snapshot([PLAIN])

    assert delays_left_s(snapshot, circumstances(snapshot, Limits(), leases=[lent(delay_s=0.0)])) == {}


@st.composite
def leases(draw: st.DrawFn) -> Lease:
    """Draw a change that is or was out."""
    job_id = draw(st.integers(1, 4))
    job = make_job(job_id, user="abb"[job_id % 3] if job_id < 4 else "")
    lease = lent(
        job,
        ago_s=draw(st.sampled_from([-60.0, 0.0, 600.0, 5000.0, 200_000.0])),
        delay_s=draw(st.sampled_from([0.0, 60.0, 7200.0])),
        due_after_s=draw(st.sampled_from([None, 60.0, 9000.0])),
        ending=draw(st.none() | st.sampled_from(Ending)),
        ended_ago_s=draw(st.sampled_from([-60.0, 0.0, 300.0, 100_000.0])),
    )
    planned = draw(st.sampled_from([None, TAKEN_AT - 5000.0, TAKEN_AT, TAKEN_AT + 900.0]))
    return replace(lease, by_person=draw(st.booleans()), would_start_time=planned)


@given(st.lists(leases(), max_size=8), st.randoms(use_true_random=False))
def test_order_of_the_leases_does_not_matter(lent_out: list[Lease], chance: random.Random) -> None:
    shuffled = list(lent_out)
    chance.shuffle(shuffled)

    assert ledger_of(shuffled, TAKEN_AT, Limits()) == ledger_of(lent_out, TAKEN_AT, Limits())


@given(st.lists(leases(), max_size=6), leases())
def test_one_more_lease_never_lowers_what_is_booked(lent_out: list[Lease], more: Lease) -> None:
    before, after = (ledger_of(each, TAKEN_AT, Limits()) for each in (lent_out, [*lent_out, more]))

    for user, delay_s in before.delay_s_by_user.items():
        assert after.delay_s_by_user[user] >= delay_s
    for job_id, delay_s in before.delay_s_by_job.items():
        assert after.delay_s_by_job[job_id] >= delay_s
    assert before.resting <= after.resting and before.objected <= after.objected
