"""What advice has cost, from what was lent."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.actions import SetNice
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.guard.circumstances import circumstances, delays_left_s
from advisor.guard.ledger import NOTHING_BOOKED, booked_s, ledger_of
from advisor.settings import Limits
from tests.builders import HOUR_S, TAKEN_AT, make_job, make_snapshot
from tests.guard.proposals import PLAIN, lent


@pytest.mark.parametrize(
    ("lease", "cost_s"),
    [
        pytest.param(lent(delay_s=900.0), 900.0, id="out"),
        pytest.param(lent(delay_s=900.0, ago_s=60.0, due_after_s=600.0), 900.0, id="out, and not due"),
        pytest.param(lent(delay_s=900.0, ago_s=HOUR_S, due_after_s=1800.0), 900.0 + 1800.0, id="out, and overdue"),
        pytest.param(
            lent(delay_s=900.0, due_after_s=600.0, ending=Ending.TAKEN_BACK, ended_ago_s=3000.0),
            900.0,
            id="back in time",
        ),
        pytest.param(
            lent(delay_s=900.0, due_after_s=600.0, ending=Ending.TAKEN_BACK, ended_ago_s=3300.0), 600.0, id="back early"
        ),
        pytest.param(
            lent(delay_s=900.0, due_after_s=600.0, ending=Ending.REVERTED, ended_ago_s=2900.0), 1000.0, id="back late"
        ),
        pytest.param(
            replace(lent(delay_s=900.0, due_after_s=600.0), overruled_time=TAKEN_AT - 3500.0), 400.0, id="overruled"
        ),
        pytest.param(
            lent(delay_s=900.0, due_after_s=600.0, ending=Ending.TAKEN_BACK, ended_ago_s=9e4), 0.0, id="clock went back"
        ),
        pytest.param(lent(delay_s=900.0, ending=Ending.NOT_APPLIED), 0.0, id="never applied"),
        pytest.param(lent(delay_s=0.0, due_after_s=1.0), 0.0, id="delays nothing"),
        pytest.param(
            lent(delay_s=900.0, ending=Ending.NO_LONGER_PENDING, ended_ago_s=3500.0), 100.0, id="soon started"
        ),
        pytest.param(lent(delay_s=900.0, ending=Ending.NO_LONGER_PENDING), 900.0, id="started later"),
        pytest.param(lent(delay_s=900.0, ending=Ending.DONE_FOR_GOOD), 900.0, id="stopped"),
    ],
)
def test_change_costs_what_it_may_have_delayed_its_job(lease: Lease, cost_s: float) -> None:
    assert booked_s(lease, TAKEN_AT) == cost_s


def test_second_change_to_a_field_costs_what_both_do_even_if_the_job_starts_soon() -> None:
    first = lent(delay_s=900.0)
    second = intended(SetNice(job_id=1, before=50, after=90), TAKEN_AT - 60.0, previous=first, added_delay_s=600.0)

    started = replace(second, state=LeaseState.OUT).ended(Ending.NO_LONGER_PENDING, TAKEN_AT)

    assert booked_s(started, TAKEN_AT) == 1500.0


def test_costs_are_added_up_by_job_user_and_account() -> None:
    bob = replace(PLAIN, job_id=2, user="bob")
    leases = [lent(delay_s=100.0), lent(delay_s=20.0, ending=Ending.TAKEN_BACK), lent(bob, delay_s=3.0)]

    ledger = ledger_of(leases, TAKEN_AT, Limits())

    assert ledger.delay_s_by_job == {1: 120.0, 2: 3.0}
    assert ledger.delay_s_by_user == {"alice": 120.0, "bob": 3.0}
    assert ledger.delay_s_by_account == {"lab": 123.0}


def test_user_is_charged_until_a_window_after_a_change_ended_and_the_job_for_good() -> None:
    limits = Limits(fairness_window_s=HOUR_S)
    inside, outside = (
        ledger_of([lent(ending=Ending.TAKEN_BACK, ago_s=9e4, ended_ago_s=ago_s)], TAKEN_AT, limits)
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
    job = make_job(draw(st.integers(1, 4)), user=draw(st.sampled_from(["a", "b", ""])))
    lease = lent(
        job,
        ago_s=draw(st.sampled_from([-60.0, 0.0, 600.0, 5000.0, 200_000.0])),
        delay_s=draw(st.sampled_from([0.0, 60.0, 7200.0])),
        due_after_s=draw(st.sampled_from([None, 60.0, 9000.0])),
        ending=draw(st.none() | st.sampled_from(Ending)),
        ended_ago_s=draw(st.sampled_from([-60.0, 0.0, 300.0, 100_000.0])),
    )
    return replace(lease, by_person=draw(st.booleans()))


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
