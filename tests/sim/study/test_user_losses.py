"""Which users lose under a policy, and which only seem to."""

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.sim.study.cell import LONGEST_SHIFT_S, perturbed
from advisor.sim.study.user_losses import UserTally, tally_users, user_losses
from tests.sim.building import make_trace
from tests.sim.runs import random_trace

HOUR_S = 3600.0
COPIES, USERS, JOBS = 4, 30, 40
USER = np.repeat(np.arange(USERS), JOBS)


def world(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw the JCT of the same jobs twice: chance moves all jobs of a user together, and every job alone."""
    rng = np.random.default_rng(seed)
    own = rng.lognormal(np.log(6 * HOUR_S), 1.0, USERS * JOBS)
    shape = (2, COPIES, USERS)
    together = rng.lognormal(0.0, 0.07, shape)[..., USER]
    before_s, after_s = own * together * rng.lognormal(0.0, 0.3, (2, COPIES, USERS * JOBS))
    return before_s, after_s


def test_without_any_effect_hardly_any_world_has_a_user_beyond_chance() -> None:
    losses = [user_losses(*world(seed), USER) for seed in range(100)]

    assert sum(any(loss.is_beyond_chance for loss in users) for users in losses) <= 5
    # By the means alone most worlds have users who lose.
    assert sum(any(loss.is_worse for loss in users) for users in losses) >= 90


def test_a_loss_of_half_is_found_and_it_alone() -> None:
    as_they_are = []
    for seed in range(100):
        before_s, after_s = world(seed)
        after_s[:, USER == 7] *= 1.5
        as_they_are.append([loss.user for loss in user_losses(before_s, after_s, USER) if loss.is_beyond_chance])

    assert as_they_are.count([7]) >= 80


def test_a_loss_is_the_difference_of_the_means_and_the_worst_comes_first() -> None:
    user = np.repeat([0, 1, 2], 20)
    before_s = np.full((2, 60), 10 * HOUR_S)
    after_s = before_s * np.repeat([1.2, 0.5, 1.5], 20)

    worst, second, best = user_losses(before_s, after_s, user)

    assert [loss.user for loss in (worst, second, best)] == [2, 0, 1]
    assert (worst.before_s, worst.after_s, worst.jobs) == (10 * HOUR_S, 15 * HOUR_S, 20)
    assert (worst.percent, worst.error_s, worst.allowed_s) == (50.0, 0.0, 1800.0)
    assert worst.is_beyond_chance and second.is_beyond_chance
    assert not best.is_worse


@pytest.mark.parametrize(
    ("hours", "longer_s", "is_worse"),
    [(1.0, 1700.0, False), (1.0, 1900.0, True), (100.0, 17_000.0, False), (100.0, 19_000.0, True)],
)
def test_half_an_hour_and_five_percent_are_allowed(hours: float, longer_s: float, is_worse: bool) -> None:
    before_s = np.full((2, 20), hours * HOUR_S)

    (loss,) = user_losses(before_s, before_s + longer_s, np.zeros(20, np.int32))

    assert (loss.is_worse, loss.is_beyond_chance) == (is_worse, is_worse)


def test_a_policy_that_varies_more_has_to_lose_more() -> None:
    before_s = np.full((4, 20), 10 * HOUR_S)
    steady, unsteady = (
        before_s * np.array(factors)[:, None] for factors in ([1.2, 1.2, 1.2, 1.2], [0.8, 1.0, 1.2, 1.8])
    )

    (sure,), (unsure,) = (user_losses(before_s, after_s, np.zeros(20, np.int32)) for after_s in (steady, unsteady))

    assert sure.loss_s == pytest.approx(unsure.loss_s)
    assert sure.is_beyond_chance
    assert unsure.is_worse and not unsure.is_beyond_chance


def test_users_with_few_jobs_that_ended_in_all_copies_are_left_out() -> None:
    user = np.repeat([0, 1], 20)
    before_s, after_s = np.full((2, 40), HOUR_S), np.full((2, 40), HOUR_S)
    after_s[1, 3] = np.nan

    assert [loss.user for loss in user_losses(before_s, after_s, user)] == [1]
    assert [loss.jobs for loss in user_losses(before_s, after_s, user, least_jobs=1)] == [19, 20]


def test_users_are_counted_by_the_mean_of_their_jobs_in_one_run() -> None:
    user = np.repeat([0, 1, 2, 3], [20, 20, 20, 19])
    before_s = np.full(79, 10 * HOUR_S)
    after_s = before_s * np.repeat([1.2, 0.5, 1.04, 2.0], [20, 20, 20, 19])

    tally = tally_users(before_s, after_s, user)

    assert tally == UserTally(worse=1, better=1, users=3)


def test_jobs_that_one_policy_did_not_finish_do_not_count_for_their_user() -> None:
    user = np.zeros(21, np.int32)
    before_s, after_s = np.full((2, 21), HOUR_S)
    after_s[:2] = np.nan

    assert tally_users(before_s, after_s, user) == UserTally(worse=0, better=0, users=0)


def test_a_copy_holds_the_same_jobs_up_to_five_minutes_later() -> None:
    trace = random_trace(500)

    copy = perturbed(trace, 0, 0)

    later_s = copy.trace.jobs["submit_time"] - trace.jobs["submit_time"][copy.row]
    assert 0.0 <= later_s.min() < 10.0
    assert 290.0 < later_s.max() <= LONGEST_SHIFT_S
    assert (np.diff(copy.trace.jobs["submit_time"]) >= 0.0).all()
    assert not np.array_equal(copy.row, np.arange(500))
    for name in ("job_id", "run_time_s", "gpus", "user"):
        assert np.array_equal(copy.in_original_order(copy.trace.jobs[name]), trace.jobs[name])


def test_values_are_put_back_into_the_order_of_the_trace() -> None:
    trace = random_trace(50)
    copy = perturbed(trace, 0, 0)
    ids = copy.trace.jobs["job_id"].astype(np.float64)

    ordered = copy.in_original_order(np.stack([ids, -ids]))

    assert np.array_equal(ordered, np.stack([trace.jobs["job_id"], -trace.jobs["job_id"]]))


def test_copies_differ_by_repeat_and_by_seed_and_are_the_same_again() -> None:
    trace = random_trace(50)

    times = [
        perturbed(trace, repeat, seed).trace.jobs["submit_time"] for repeat, seed in [(0, 0), (1, 0), (0, 1), (0, 0)]
    ]

    assert np.array_equal(times[0], times[3])
    assert not np.array_equal(times[0], times[1]) and not np.array_equal(times[0], times[2])


def test_a_user_keeps_the_order_and_the_arrays_of_the_own_jobs() -> None:
    array = [{"user": "ann", "array_id": 1}] * 5
    follower = {"submit_time": 1.0, "user": "ann"}
    other = {"submit_time": 2.0, "user": "bob"}
    trace = make_trace([*array, follower, other])

    for repeat in range(50):
        submitted = perturbed(trace, repeat, 0)
        times = submitted.in_original_order(submitted.trace.jobs["submit_time"])
        assert len(set(times[:5].tolist())) == 1
        assert times[5] >= times[0]
