"""What must hold of every policy that decides in rounds, on random mixes of rigid and elastic jobs."""

import numpy as np
import pytest

from advisor.sim.cluster import Cluster, Failures, NodeGroup
from advisor.sim.policies import POLICIES
from advisor.sim.policies.rounds import RoundPolicy
from advisor.sim.policies.themis import ideal_time_s, shared_time_s
from advisor.sim.run_outcome import End
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_trace, run_of, starts_and_ends, times_of
from tests.sim.watching import check_view, run_script, run_watched, seen_at_first, sizes_of

MODELS = ("a3c", "bert", "lm", "resnet50")
CLUSTER = "nodes=3,gpus=4,cpus=32,memory_mib=4000,leaf=2"
EVERY_S = {name: policy.every_s for name, policy in POLICIES.items() if isinstance(policy, RoundPolicy)}
ROUND_POLICIES = list(EVERY_S)


def mixed_trace(seed: int, jobs: int = 60) -> Trace:
    """Build an overloaded mix: half of the jobs elastic, several models, some hungry for CPUs or memory."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice((1, 1, 1, 2, 4, 5, 8), jobs)
    elastic = rng.random(jobs) < 0.5
    return make_trace(
        [
            {
                "submit_time": submit_time,
                "run_time_s": run_time_s,
                "gpus": size,
                "gpus_min": max(1, size // 2) if can_change else size,
                "gpus_max": min(12, size * 3) if can_change else size,
                "nodes_max": 0,
                "cpus_per_gpu": 10 if size == 1 else 2,
                "memory_mib_per_gpu": 900 if size == 2 else 0,
                "model": MODELS[int(rng.integers(len(MODELS)))],
            }
            for submit_time, run_time_s, size, can_change in zip(
                rng.uniform(0.0, 400.0, jobs).cumsum(),
                rng.lognormal(7.5, 1.0, jobs),
                gpus.tolist(),
                elastic.tolist(),
                strict=True,
            )
        ]
    )


def test_the_policies_in_rounds_are_those_of_the_literature() -> None:
    in_rounds = [name for name, every_s in EVERY_S.items() if every_s > 0.0]
    whenever_something_happens = [name for name, every_s in EVERY_S.items() if every_s == 0.0]

    assert in_rounds == ["drf", "tetris", "optimus", "gandiva", "themis"]
    dally = ["dally", "dally+preempt", "dally-nowait", "dally-consolidated", "dally-fixed"]
    assert whenever_something_happens == dally


@pytest.mark.parametrize("policy", ROUND_POLICIES)
@pytest.mark.parametrize(
    "options", [SimulationOptions(), SimulationOptions(speeds="noisy=10")], ids=["measured", "noisy"]
)
def test_all_jobs_end_and_no_gpu_is_held_twice(policy: str, options: SimulationOptions) -> None:
    trace = mixed_trace(seed=1)

    run = run_watched(trace, CLUSTER, policy, check_view, options)

    assert (run.outcomes["end"] == End.FINISHED).all()
    assert (run.outcomes["start_time"] >= trace.jobs["submit_time"]).all()


@pytest.mark.parametrize("policy", ROUND_POLICIES)
def test_under_ideal_execution_the_gpu_time_held_is_the_work(policy: str) -> None:
    trace = mixed_trace(seed=2)

    run = run_of(trace, CLUSTER, policy)

    work_gpu_s = trace.jobs["run_time_s"] * trace.jobs["gpus"]
    assert run.outcomes["held_gpu_s"] == pytest.approx(work_gpu_s)


@pytest.mark.parametrize("policy", ROUND_POLICIES)
def test_nodes_that_fail_are_left_and_used_again(policy: str) -> None:
    cluster = Cluster(nodes=(NodeGroup(count=3, gpus=4),), failures=Failures(node_mtbf_h=1.0, repair_h=0.5))
    trace = mixed_trace(seed=3)

    run = run_watched(trace, cluster, policy, check_view, SimulationOptions())

    assert (run.outcomes["end"] == End.FINISHED).all()
    assert run.outcomes["preemptions"].sum() > 0


@pytest.mark.no_cover
@pytest.mark.parametrize("policy", ROUND_POLICIES)
def test_equal_seeds_give_equal_runs(policy: str) -> None:
    trace, options = mixed_trace(seed=4), SimulationOptions(speeds="estimated")

    first, second = (run_of(trace, CLUSTER, policy, options, seed=5) for _ in range(2))

    assert (first.segments == second.segments).all()


@pytest.mark.parametrize("policy", ROUND_POLICIES)
def test_on_an_idle_cluster_a_rigid_job_starts_with_the_next_round_and_runs_through(policy: str) -> None:
    jobs = [
        {"submit_time": 10, "run_time_s": 5000, "gpus": 6, "nodes_max": 2},
        {"submit_time": 20_000, "run_time_s": 10},
    ]

    run = run_of(jobs, "nodes=2,gpus=4", policy)

    starts = (300, 20_100) if EVERY_S[policy] else (10, 20_000)
    assert starts_and_ends(run) == [(starts[0], starts[0] + 5000), (starts[1], starts[1] + 10)]
    assert run.outcomes["preemptions"].tolist() == run.outcomes["resizes"].tolist() == [0, 0]


@pytest.mark.parametrize("policy", ROUND_POLICIES)
def test_a_gpu_type_is_waited_for(policy: str) -> None:
    cluster = Cluster(nodes=(NodeGroup(count=1, gpus=1, gpu_type="v100"), NodeGroup(count=1, gpus=1, gpu_type="a100")))
    asked = make_trace([{"gpu_type": 0}, {"gpu_type": 0}])
    trace = Trace(name=asked.name, jobs=asked.jobs, gpu_types=("a100",))

    run = run_of(trace, cluster, policy)

    second = 300 if EVERY_S[policy] else 100
    assert starts_and_ends(run) == [(0, 100), (second, second + 100)]


def test_rigid_jobs_are_served_in_order_of_submission_and_what_does_not_fit_is_skipped() -> None:
    jobs = [{"gpus": 3, "run_time_s": 1000}, {"gpus": 2}, {"gpus": 1}]

    assert times_of(jobs, "nodes=1,gpus=4", "drf") == [(0, 1000), (1200, 1300), (0, 100)]


def test_elastic_jobs_get_equal_shares_and_the_first_what_is_left() -> None:
    jobs = [{"gpus": 4, "gpus_min": 1, "gpus_max": 8, "run_time_s": 100}] * 3

    assert sizes_of(run_of(jobs, "nodes=1,gpus=8", "drf")) == [[3], [3], [2]]


def test_a_job_gets_no_more_than_its_largest_size() -> None:
    job = {"gpus": 2, "gpus_min": 1, "run_time_s": 100}
    jobs = [{**job, "gpus_max": 2}, {**job, "gpus_max": 8}]

    assert sizes_of(run_of(jobs, "nodes=1,gpus=8", "drf")) == [[2], [6]]


def test_the_dominant_share_counts() -> None:
    job = {"gpus": 1, "gpus_min": 1, "gpus_max": 8}
    jobs = [{**job, "memory_mib_per_gpu": 200}, job]

    # A GPU of the first takes a quarter of the memory, one of the second an eighth of the GPUs. The shares go
    # 1/4 1/8, 1/4 2/8, 2/4 2/8, 2/4 3/8, 2/4 4/8, 3/4 4/8, 3/4 5/8: all GPUs are out.
    assert sizes_of(run_of(jobs, "nodes=1,gpus=8,memory_mib=800", "drf")) == [[3], [5]]


def test_jobs_are_resized_at_the_end_of_a_slot_only() -> None:
    job = {"gpus": 4, "gpus_min": 1, "gpus_max": 8}
    jobs = [{**job, "run_time_s": 4000}, {**job, "submit_time": 100, "run_time_s": 600}]

    run = run_of(jobs, "nodes=1,gpus=8", "drf")

    # 9,600 of 16,000 GPU seconds on 8 GPUs up to 1,200, 4,800 on 4 up to 2,400, and 1,600 on 8 again.
    assert starts_and_ends(run) == [(0, 2600), (1200, 1800)]
    assert sizes_of(run) == [[8, 4, 8], [4]]
    assert run.outcomes["resizes"].tolist() == [2, 0]
    assert run.outcomes["preemptions"].tolist() == [0, 0]


def test_a_gang_submitted_first_pushes_others_aside_at_the_end_of_a_slot() -> None:
    jobs = [{"run_time_s": 200}, {"gpus": 2}, {"run_time_s": 5000}]

    run = run_of(jobs, "nodes=1,gpus=2", "drf")

    # The last goes on with the first round after the gang's end.
    assert starts_and_ends(run) == [(0, 200), (1200, 1300), (0, 5300)]
    assert run.outcomes["preemptions"].tolist() == [0, 0, 1]


def test_among_equal_demands_the_least_work_goes_first() -> None:
    jobs = [{"run_time_s": 290}, {"run_time_s": 200}, {"run_time_s": 100}]

    assert times_of(jobs, "nodes=1,gpus=1", "tetris") == [(600, 890), (300, 500), (0, 100)]


def test_among_equal_works_the_best_fit_goes_first() -> None:
    jobs = [{"gpus": 1, "run_time_s": 400}, {"gpus": 4, "run_time_s": 100}]

    assert times_of(jobs, "nodes=1,gpus=4", "tetris") == [(300, 700), (0, 100)]


def test_little_work_outweighs_a_better_fit() -> None:
    jobs = [{"gpus": 3, "run_time_s": 1000}, {"gpus": 2, "run_time_s": 100}]

    # Fit 3/4 and 2/4, mean 5/8; work 750 and 50, mean 400: scores 3/4 - 75/64 and 2/4 - 5/64.
    assert times_of(jobs, "nodes=1,gpus=4", "tetris") == [(300, 1300), (0, 100)]


def test_a_job_that_does_not_fit_is_passed_over() -> None:
    jobs = [{"gpus": 2, "run_time_s": 1000}, {"submit_time": 1, "gpus": 3}, {"submit_time": 2, "gpus": 2}]

    assert times_of(jobs, "nodes=1,gpus=4", "tetris") == [(0, 1000), (1200, 1300), (300, 400)]


def test_running_jobs_are_left_alone() -> None:
    jobs = [{"run_time_s": 10_000}, {"submit_time": 10, "run_time_s": 10}]

    run = run_of(jobs, "nodes=1,gpus=1", "tetris")

    assert starts_and_ends(run) == [(0, 10_000), (10_200, 10_210)]
    assert run.outcomes["preemptions"].tolist() == [0, 0]


def test_an_elastic_job_takes_what_fits_and_the_next_one_what_is_left() -> None:
    job = {"gpus": 4, "gpus_min": 2, "gpus_max": 6}
    jobs = [job, job, job]

    assert sizes_of(run_of(jobs, "nodes=1,gpus=8", "tetris")) == [[6], [2], [6]]


def test_a_smaller_minimum_of_the_same_request_is_tried_after_a_larger_one_failed() -> None:
    job = {"gpus": 4, "gpus_max": 4}
    jobs = [{"gpus": 3, "run_time_s": 10}, {**job, "gpus_min": 4}, {**job, "gpus_min": 1}]

    assert sizes_of(run_of(jobs, "nodes=1,gpus=4", "tetris")) == [[3], [4], [1]]


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
    jobs = [{"run_time_s": 10_000}, {"submit_time": 100, "run_time_s": 1000}]

    run = run_of(jobs, "nodes=1,gpus=1", "themis")

    # At 1,200 s rho is 10,000 / 20,000 of the first and 2,100 / 2,000 of the second; the first goes on with the next
    # round, at 2,400 s.
    assert starts_and_ends(run) == [(0, 11_200), (1200, 2200)]
    assert run.outcomes["preemptions"].tolist() == [1, 0]


def test_the_better_off_keeps_waiting() -> None:
    jobs = [{"submit_time": 10, "run_time_s": 2000}, {"submit_time": 1000, "run_time_s": 50_000}]

    # At 1,200 s rho is (1,190 + 1,100) / 4,000 against (200 + 50,000) / 100,000.
    assert times_of(jobs, "nodes=1,gpus=1", "themis") == [(300, 2300), (2400, 52_400)]


def test_among_those_who_bid_the_highest_gain_per_gpu_wins() -> None:
    run_times_s = [900, 100, 50, 200, 200, 200]
    jobs = [{"run_time_s": run_time_s} for run_time_s in run_times_s]

    # At first all have the same rho and the first two bid; the shorter of them gains more by a lease. Then waiting
    # hurts the shortest most.
    assert np.argsort(run_of(jobs, "nodes=1,gpus=1", "themis").outcomes["start_time"]).tolist()[:2] == [1, 2]


def test_a_bid_counts_by_the_gpus_it_is_for() -> None:
    small = {"gpus": 2, "gpus_min": 1, "run_time_s": 150}
    jobs = [{"gpus": 2, "run_time_s": 100}] + [small] * 5

    # A lease lowers rho by 1/100 of the same on two GPUs, or by 1/150 on one.
    assert [start for start, _ in times_of(jobs, "nodes=1,gpus=2", "themis")][:2] == [300, 0]


def test_an_elastic_bidder_takes_what_it_can_use_and_others_share_what_it_leaves() -> None:
    job = {"gpus": 2, "gpus_min": 1, "run_time_s": 100}
    jobs = [{**job, "gpus_max": 4}, {**job, "gpus_max": 8}, {**job, "gpus_max": 8}]

    assert sizes_of(run_of(jobs, "nodes=1,gpus=8", "themis")) == [[4], [2], [2]]


def test_bidders_alike_share_alike() -> None:
    jobs = [{"gpus": 2, "gpus_min": 1, "gpus_max": 8, "run_time_s": 100}] * 6

    run = run_of(jobs, "nodes=1,gpus=8", "themis")

    # A fifth of six jobs are two.
    assert sizes_of(run)[:2] == [[4], [4]]
    assert [start for start, _ in starts_and_ends(run)][:3] == [0, 0, 300]


def test_a_job_that_waits_does_not_lose_what_it_may_take() -> None:
    jobs = [{"gpus": 2, "run_time_s": 100}, {"gpus": 3, "gpus_min": 1, "gpus_max": 3, "run_time_s": 100}]

    run = run_of(jobs, "nodes=1,gpus=4", "themis")

    assert sizes_of(run) == [[2], [2]]
    assert starts_and_ends(run)[1] == pytest.approx((0, 150))
