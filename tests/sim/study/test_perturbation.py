"""Copies of a trace: the same jobs a little later, in an order of their own."""

import numpy as np

from advisor.sim.study.perturbation import LONGEST_SHIFT_S, perturbed
from tests.sim.building import make_trace
from tests.sim.runs import random_trace


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
