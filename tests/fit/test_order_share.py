"""How well forecasts order jobs that wait together."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.fit.order_share import WaitedJobs, ordered
from tests.examples import examples


def waited(
    run_s: Sequence[float],
    *,
    gpus: Sequence[float] | None = None,
    burst: Sequence[int] | None = None,
    start_time: Sequence[float] | None = None,
) -> WaitedJobs:
    """Return jobs that were submitted one second after the other, and all of which waited for an hour by default."""
    count = len(run_s)
    return WaitedJobs(
        submit_time=np.arange(count, dtype=np.float64),
        start_time=np.full(count, 3600.0) if start_time is None else np.array(start_time),
        gpus=np.ones(count) if gpus is None else np.array(gpus),
        burst=np.arange(count) if burst is None else np.array(burst),
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
