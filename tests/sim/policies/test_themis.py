"""Themis on cases small enough to compute by hand."""

import numpy as np
import pytest

from advisor.sim.policies.themis import ideal_time_s, shared_time_s
from tests.sim.building import make_trace, run_of, starts_and_ends
from tests.sim.policies.watching import run_script, seen_at_first, sizes_of


def test_the_ideal_is_the_run_time_on_an_equal_share() -> None:
    trace = make_trace([{"gpus": 4, "run_time_s": 100}, {"gpus": 1, "run_time_s": 50}])

    ideal_s = seen_at_first(trace, "nodes=1,gpus=4", lambda view: ideal_time_s(view, view.active))

    # Two of four GPUs each: the first takes twice as long on them, the second needs one only.
    assert ideal_s.tolist() == [200, 50]


def test_the_shared_time_counts_from_submission() -> None:
    trace = make_trace([{"submit_time": 100, "run_time_s": 50}])

    shared_s = seen_at_first(trace, "nodes=1,gpus=4", lambda view: shared_time_s(view, view.active))

    assert shared_s.tolist() == [200 + 50]


def test_the_shared_time_goes_by_the_present_size() -> None:
    trace = make_trace([{"gpus": 2, "gpus_max": 4, "run_time_s": 1000}])
    shared_s: list[float] = []

    run_script(
        trace,
        "nodes=1,gpus=4",
        {
            0.0: lambda view: view.serve(view.pending, np.array([4])),
            300.0: lambda view: shared_s.extend(shared_time_s(view, view.active)),
        },
    )

    # At 300 s as much as takes 400 s at the size asked is left, and it runs twice as fast.
    assert shared_s == [300 + 200]


def test_the_worst_off_gets_the_gpu_when_the_leases_end() -> None:
    trace = make_trace([{"run_time_s": 10_000}, {"submit_time": 100, "run_time_s": 1000}])

    run = run_of(trace, "nodes=1,gpus=1", "themis")

    # At 1,200 s rho is 10,000 / 20,000 of the first and 2,100 / 2,000 of the second; the first goes on with the next
    # round, at 2,400 s.
    assert starts_and_ends(run) == [(0, 11_200), (1200, 2200)]
    assert run.outcomes["preemptions"].tolist() == [1, 0]


def test_the_better_off_keeps_waiting() -> None:
    trace = make_trace([{"submit_time": 10, "run_time_s": 2000}, {"submit_time": 1000, "run_time_s": 50_000}])

    run = run_of(trace, "nodes=1,gpus=1", "themis")

    # At 1,200 s rho is (1,190 + 1,100) / 4,000 against (200 + 50,000) / 100,000.
    assert starts_and_ends(run) == [(300, 2300), (2400, 52_400)]


def test_among_those_who_bid_the_highest_gain_per_gpu_wins() -> None:
    run_times_s = [900, 100, 50, 200, 200, 200]
    trace = make_trace([{"run_time_s": run_time_s} for run_time_s in run_times_s])

    run = run_of(trace, "nodes=1,gpus=1", "themis")

    # At first all have the same rho and the first two bid; the shorter of them gains more by a lease. Then waiting
    # hurts the shortest most.
    assert np.argsort(run.outcomes["start_time"]).tolist()[:2] == [1, 2]


def test_a_bid_counts_by_the_gpus_it_is_for() -> None:
    small = {"gpus": 2, "gpus_min": 1, "run_time_s": 150}
    trace = make_trace([{"gpus": 2, "run_time_s": 100}] + [small] * 5)

    run = run_of(trace, "nodes=1,gpus=2", "themis")

    # A lease lowers rho by 1/100 of the same on two GPUs, or by 1/150 on one.
    assert [start for start, _ in starts_and_ends(run)][:2] == [300, 0]


def test_an_elastic_bidder_takes_what_it_can_use_and_others_share_what_it_leaves() -> None:
    job = {"gpus": 2, "gpus_min": 1, "run_time_s": 100}
    trace = make_trace([{**job, "gpus_max": 4}, {**job, "gpus_max": 8}, {**job, "gpus_max": 8}])

    run = run_of(trace, "nodes=1,gpus=8", "themis")

    assert sizes_of(run) == [[4], [2], [2]]


def test_bidders_alike_share_alike() -> None:
    trace = make_trace([{"gpus": 2, "gpus_min": 1, "gpus_max": 8, "run_time_s": 100}] * 6)

    run = run_of(trace, "nodes=1,gpus=8", "themis")

    # A fifth of six jobs are two.
    assert sizes_of(run)[:2] == [[4], [4]]
    assert [start for start, _ in starts_and_ends(run)][:3] == [0, 0, 300]


def test_a_job_that_waits_does_not_lose_what_it_may_take() -> None:
    trace = make_trace([{"gpus": 2, "run_time_s": 100}, {"gpus": 3, "gpus_min": 1, "gpus_max": 3, "run_time_s": 100}])

    run = run_of(trace, "nodes=1,gpus=4", "themis")

    assert sizes_of(run) == [[2], [2]]
    assert starts_and_ends(run)[1] == pytest.approx((0, 150))
