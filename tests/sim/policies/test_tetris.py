"""Tetris on cases small enough to compute by hand."""

from tests.sim.building import make_trace, run_of, starts_and_ends
from tests.sim.policies.watching import sizes_of


def test_among_equal_demands_the_least_work_goes_first() -> None:
    trace = make_trace([{"run_time_s": 290}, {"run_time_s": 200}, {"run_time_s": 100}])

    run = run_of(trace, "nodes=1,gpus=1", "tetris")

    assert starts_and_ends(run) == [(600, 890), (300, 500), (0, 100)]


def test_among_equal_works_the_best_fit_goes_first() -> None:
    trace = make_trace([{"gpus": 1, "run_time_s": 400}, {"gpus": 4, "run_time_s": 100}])

    run = run_of(trace, "nodes=1,gpus=4", "tetris")

    assert starts_and_ends(run) == [(300, 700), (0, 100)]


def test_little_work_outweighs_a_better_fit() -> None:
    trace = make_trace([{"gpus": 3, "run_time_s": 1000}, {"gpus": 2, "run_time_s": 100}])

    run = run_of(trace, "nodes=1,gpus=4", "tetris")

    # Fit 3/4 and 2/4, mean 5/8; work 750 and 50, mean 400: scores 3/4 - 75/64 and 2/4 - 5/64.
    assert starts_and_ends(run) == [(300, 1300), (0, 100)]


def test_a_job_that_does_not_fit_is_passed_over() -> None:
    trace = make_trace([{"gpus": 2, "run_time_s": 1000}, {"submit_time": 1, "gpus": 3}, {"submit_time": 2, "gpus": 2}])

    run = run_of(trace, "nodes=1,gpus=4", "tetris")

    assert starts_and_ends(run) == [(0, 1000), (1200, 1300), (300, 400)]


def test_running_jobs_are_left_alone() -> None:
    trace = make_trace([{"run_time_s": 10_000}, {"submit_time": 10, "run_time_s": 10}])

    run = run_of(trace, "nodes=1,gpus=1", "tetris")

    assert starts_and_ends(run) == [(0, 10_000), (10_200, 10_210)]
    assert run.outcomes["preemptions"].tolist() == [0, 0]


def test_an_elastic_job_takes_what_fits_and_the_next_one_what_is_left() -> None:
    job = {"gpus": 4, "gpus_min": 2, "gpus_max": 6}
    trace = make_trace([job, job, job])

    run = run_of(trace, "nodes=1,gpus=8", "tetris")

    assert sizes_of(run) == [[6], [2], [6]]


def test_a_smaller_minimum_of_the_same_request_is_tried_after_a_larger_one_failed() -> None:
    job = {"gpus": 4, "gpus_max": 4}
    trace = make_trace([{"gpus": 3, "run_time_s": 10}, {**job, "gpus_min": 4}, {**job, "gpus_min": 1}])

    run = run_of(trace, "nodes=1,gpus=4", "tetris")

    assert sizes_of(run) == [[3], [4], [1]]
