"""DRF on cases small enough to compute by hand."""

from tests.sim.building import make_trace, run_of, starts_and_ends
from tests.sim.policies.watching import sizes_of


def test_rigid_jobs_are_served_in_order_of_submission_and_what_does_not_fit_is_skipped() -> None:
    trace = make_trace([{"gpus": 3, "run_time_s": 1000}, {"gpus": 2}, {"gpus": 1}])

    run = run_of(trace, "nodes=1,gpus=4", "drf")

    assert starts_and_ends(run) == [(0, 1000), (1200, 1300), (0, 100)]


def test_elastic_jobs_get_equal_shares_and_the_first_what_is_left() -> None:
    trace = make_trace([{"gpus": 4, "gpus_min": 1, "gpus_max": 8, "run_time_s": 100}] * 3)

    run = run_of(trace, "nodes=1,gpus=8", "drf")

    assert sizes_of(run) == [[3], [3], [2]]


def test_a_job_gets_no_more_than_its_largest_size() -> None:
    job = {"gpus": 2, "gpus_min": 1, "run_time_s": 100}
    trace = make_trace([{**job, "gpus_max": 2}, {**job, "gpus_max": 8}])

    run = run_of(trace, "nodes=1,gpus=8", "drf")

    assert sizes_of(run) == [[2], [6]]


def test_the_dominant_share_counts() -> None:
    job = {"gpus": 1, "gpus_min": 1, "gpus_max": 8}
    trace = make_trace([{**job, "memory_mib_per_gpu": 200}, job])

    run = run_of(trace, "nodes=1,gpus=8,memory_mib=800", "drf")

    # A GPU of the first takes a quarter of the memory, one of the second an eighth of the GPUs. The shares go
    # 1/4 1/8, 1/4 2/8, 2/4 2/8, 2/4 3/8, 2/4 4/8, 3/4 4/8, 3/4 5/8: all GPUs are out.
    assert sizes_of(run) == [[3], [5]]


def test_jobs_are_resized_at_the_end_of_a_slot_only() -> None:
    job = {"gpus": 4, "gpus_min": 1, "gpus_max": 8}
    trace = make_trace([{**job, "run_time_s": 4000}, {**job, "submit_time": 100, "run_time_s": 600}])

    run = run_of(trace, "nodes=1,gpus=8", "drf")

    # 9,600 of 16,000 GPU seconds on 8 GPUs up to 1,200, 4,800 on 4 up to 2,400, and 1,600 on 8 again.
    assert starts_and_ends(run) == [(0, 2600), (1200, 1800)]
    assert sizes_of(run) == [[8, 4, 8], [4]]
    assert run.outcomes["resizes"].tolist() == [2, 0]
    assert run.outcomes["preemptions"].tolist() == [0, 0]


def test_a_gang_submitted_first_pushes_others_aside_at_the_end_of_a_slot() -> None:
    trace = make_trace([{"run_time_s": 200}, {"gpus": 2}, {"run_time_s": 5000}])

    run = run_of(trace, "nodes=1,gpus=2", "drf")

    # The last goes on with the first round after the gang's end.
    assert starts_and_ends(run) == [(0, 200), (1200, 1300), (0, 5300)]
    assert run.outcomes["preemptions"].tolist() == [0, 0, 1]
