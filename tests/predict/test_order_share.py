"""How well forecasts order jobs that wait together."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from advisor.predict.order_share import WaitedJobs, order_proof, ordered
from tests.examples import examples


def waited(
    run_s: Sequence[float],
    *,
    gpus: Sequence[float] | None = None,
    burst: Sequence[int] | None = None,
    start_time: Sequence[float] | None = None,
    user: Sequence[int] | None = None,
) -> WaitedJobs:
    """Return jobs that were submitted one second after the other, and all of which waited for an hour by default."""
    count = len(run_s)
    return WaitedJobs(
        submit_time=np.arange(count, dtype=np.float64),
        start_time=np.full(count, 3600.0) if start_time is None else np.array(start_time),
        gpus=np.ones(count) if gpus is None else np.array(gpus),
        burst=np.arange(count) if burst is None else np.array(burst),
        user=np.arange(count) if user is None else np.array(user),
    )


def test_truth_orders_all_its_reverse_nothing_and_one_number_for_all_half() -> None:
    run_s = np.array([10.0, 300.0, 20.0, 7.0])

    assert ordered(waited(run_s.tolist()), run_s, [run_s, -run_s, np.ones(4)]) == [1.0, 0.0, 0.5]


def test_pairs_count_by_how_much_their_gpu_times_differ() -> None:
    run_s = np.array([100.0, 90.0, 10.0])

    # Only the first two, which differ by 10 of 180 seconds, stand in the wrong order.
    (share,) = ordered(waited(run_s.tolist()), run_s, [np.array([90.0, 100.0, 10.0])])

    assert share == pytest.approx(1.0 - 10.0 / 180.0)


def test_gpus_weigh_in_what_is_ordered() -> None:
    run_s = np.array([10.0, 20.0])

    (share,) = ordered(waited([10.0, 20.0], gpus=[8.0, 1.0]), run_s, [np.array([1.0, 20.0])])

    # The first takes 80 GPU-seconds, the second 20; said are 8 and 20.
    assert share == 0.0


def test_jobs_of_one_burst_and_jobs_that_never_waited_together_do_not_count() -> None:
    run_s = np.array([10.0, 20.0, 30.0])
    wrong = [-run_s]

    assert np.isnan(ordered(waited(run_s.tolist(), burst=[1, 1, 1]), run_s, wrong)[0])
    assert np.isnan(ordered(waited(run_s.tolist(), start_time=[0.5, 1.5, 2.5]), run_s, wrong)[0])


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(2, 700), st.integers(0, 2**32 - 1))
def test_blocks_give_what_all_pairs_at_once_give(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    run_s, said_s = rng.exponential(3600.0, (2, count)).round()
    jobs = WaitedJobs(
        submit_time=rng.uniform(0.0, 9000.0, count),
        start_time=rng.uniform(9000.0, 12000.0, count),
        gpus=rng.integers(1, 9, count).astype(np.float64),
        burst=rng.integers(0, count, count),
        user=rng.integers(0, 9, count),
    )

    (share,) = ordered(jobs, run_s, [said_s])

    gap_s = np.subtract.outer(run_s * jobs.gpus, run_s * jobs.gpus)
    said_gap_s = np.subtract.outer(said_s * jobs.gpus, said_s * jobs.gpus)
    at_stake = np.abs(gap_s) * (jobs.burst != jobs.burst[:, None])
    if at_stake.any():
        expected = (at_stake * (1.0 + np.sign(gap_s) * np.sign(said_gap_s)) / 2.0).sum() / at_stake.sum()
        assert share == pytest.approx(expected)
    else:
        assert np.isnan(share)


def drawn_site(users: int, jobs: int, seed: int) -> tuple[WaitedJobs, NDArray[np.float64], np.random.Generator]:
    """Return three days of jobs of users with usual run times of their own, their run times, and more chance."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, users, jobs)
    submit_time = np.sort(rng.uniform(0.0, 3 * 86_400.0, jobs))
    run_s = np.exp(8.5 + rng.normal(0.0, 1.2, users)[user] + rng.normal(0.0, 0.8, jobs))
    jobs_of_users = WaitedJobs(
        submit_time=submit_time,
        start_time=submit_time + rng.exponential(4 * 3600.0, jobs),
        gpus=rng.choice([1.0, 2.0, 4.0, 8.0], jobs),
        burst=np.arange(jobs),
        user=user,
    )
    return jobs_of_users, run_s, rng


def noisy(run_s: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return run times that are off by a factor of about 2.7 either way."""
    return run_s * np.exp(rng.normal(0.0, 1.0, len(run_s)))


def test_proof_tells_the_shares_that_ordered_tells() -> None:
    jobs, run_s, rng = drawn_site(12, 300, seed=1)
    said_s, limit_s = noisy(run_s, rng), noisy(run_s, rng)

    proof = order_proof(jobs, run_s, said_s, limit_s)

    assert [proof.ordered_ratio, proof.limit_ratio] == pytest.approx(ordered(jobs, run_s, [said_s, limit_s]))
    assert (proof.jobs, proof.users) == (300, 12)


def test_model_that_knows_the_truth_with_noise_is_proven_and_noise_is_found_to_be_worse() -> None:
    jobs, run_s, rng = drawn_site(20, 400, seed=2)
    limit_s = noisy(noisy(noisy(run_s, rng), rng), rng)

    good, bad = (order_proof(jobs, run_s, said_s, limit_s) for said_s in (noisy(run_s, rng), noisy(np.ones(400), rng)))

    assert good.proves and not good.is_worse
    assert bad.is_worse and not bad.proves


def test_model_that_orders_as_well_as_the_limits_passes_as_rarely_as_stated() -> None:
    proofs = []
    for seed in range(200):
        jobs, run_s, rng = drawn_site(12, 150, seed)
        proofs.append(order_proof(jobs, run_s, noisy(run_s, rng), noisy(run_s, rng)))

    # Of 200 looks 2.5 and 10 are expected; more than 7 and 18 would be chances of about 1 %.
    assert sum(proof.proves for proof in proofs) <= 7
    assert sum(proof.is_worse for proof in proofs) <= 18


def test_error_is_that_of_leaving_out_each_user_with_all_pairs_of_theirs() -> None:
    jobs, run_s, rng = drawn_site(6, 80, seed=3)
    said_s, limit_s = noisy(run_s, rng), noisy(run_s, rng)

    proof = order_proof(jobs, run_s, said_s, limit_s)

    kept = [np.flatnonzero(jobs.user != user) for user in range(6)]
    without = [order_proof(jobs.take(rows), run_s[rows], said_s[rows], limit_s[rows]).gain_ratio for rows in kept]
    assert proof.error_ratio == pytest.approx(np.sqrt(5 / 6 * ((np.array(without) - np.mean(without)) ** 2).sum()))


@pytest.mark.parametrize("users", [[0, 0, 0], [0, 0, 1], []], ids=["one user", "one pair of users", "no jobs"])
def test_few_users_are_no_proof(users: list[int]) -> None:
    run_s = np.array([10.0, 20.0, 30.0])[: len(users)]

    proof = order_proof(waited(run_s.tolist(), user=users), run_s, run_s, np.ones(len(users)))

    assert not proof.proves and not proof.is_worse
