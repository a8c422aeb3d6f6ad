"""Queue policies on cases small enough to compute by hand."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.sim.cluster import Cluster, Costs, NodeGroup
from advisor.sim.run_outcome import End
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_trace, run_of, starts_and_ends, times_of

ONE_GPU = "nodes=1,gpus=1"
TWO_GPUS = "nodes=1,gpus=2"
HOUR_S = 3600.0


def test_fifo_serves_in_order_of_submission() -> None:
    jobs = [
        {"submit_time": 0, "gpus": 2, "run_time_s": 100},
        {"submit_time": 10, "run_time_s": 50},
        {"submit_time": 20, "run_time_s": 30},
        {"submit_time": 30, "gpus": 2, "run_time_s": 10},
    ]

    assert times_of(jobs, TWO_GPUS, "fifo") == [(0, 100), (100, 150), (100, 130), (150, 160)]


def test_the_head_of_a_fifo_blocks_a_job_that_would_fit() -> None:
    jobs = [
        {"submit_time": 0, "run_time_s": 100},
        {"submit_time": 10, "gpus": 2, "run_time_s": 10},
        {"submit_time": 20, "run_time_s": 5},
    ]

    assert times_of(jobs, TWO_GPUS, "fifo") == [(0, 100), (100, 110), (110, 115)]


def test_sjf_serves_the_shortest_that_waits() -> None:
    jobs = [
        {"submit_time": 0, "run_time_s": 100},
        {"submit_time": 1, "run_time_s": 50},
        {"submit_time": 2, "run_time_s": 20},
    ]

    assert times_of(jobs, ONE_GPU, "sjf") == [(0, 100), (120, 170), (100, 120)]


def test_sjf_that_believes_the_estimates_goes_by_them() -> None:
    jobs = [
        {"submit_time": 0, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 1, "run_time_s": 50, "time_limit_s": 60},
        {"submit_time": 2, "run_time_s": 20, "time_limit_s": 3600},
    ]

    run = run_of(jobs, ONE_GPU, "sjf", SimulationOptions(execution="ideal", speeds="estimated"))

    assert starts_and_ends(run) == [(0, 100), (100, 150), (150, 170)]


def test_srtf_preempts_what_has_more_left() -> None:
    jobs = [{"submit_time": 0, "run_time_s": 100}, {"submit_time": 20, "run_time_s": 10}]

    run = run_of(jobs, ONE_GPU, "srtf")

    assert starts_and_ends(run) == [(0, 110), (20, 30)]
    assert run.outcomes["preemptions"].tolist() == [1, 0]


def test_srtf_leaves_a_job_that_has_less_left() -> None:
    jobs = [{"submit_time": 0, "run_time_s": 100}, {"submit_time": 95, "run_time_s": 10}]

    assert times_of(jobs, ONE_GPU, "srtf") == [(0, 100), (100, 110)]


def test_srsf_counts_the_gpus() -> None:
    jobs = [
        {"submit_time": 0, "gpus": 2, "run_time_s": 100},
        {"submit_time": 10, "gpus": 2, "run_time_s": 60},  # 120 GPU seconds
        {"submit_time": 10, "gpus": 1, "run_time_s": 80},  # 80 GPU seconds
    ]

    # Both preempt the first, the third goes before the second, and at 90 both GPUs are free for the second.
    assert times_of(jobs, TWO_GPUS, "srsf") == [(0, 240), (90, 150), (10, 90)]


def test_a_restart_costs_time_without_progress() -> None:
    jobs = [{"submit_time": 0, "run_time_s": 100}, {"submit_time": 20, "run_time_s": 10}]
    cluster = Cluster(nodes=(NodeGroup(count=1, gpus=1),), costs=Costs(restart_s=5.0))

    run = run_of(jobs, cluster, "srtf", SimulationOptions(execution="measured"))

    assert starts_and_ends(run) == [(0, 115), (20, 30)]
    assert run.outcomes["lost_gpu_s"].tolist() == [5.0, 0.0]


def test_las_lets_a_new_job_pass_one_that_has_had_its_share() -> None:
    jobs = [{"submit_time": 0, "run_time_s": 100_000}, {"submit_time": 57_700, "run_time_s": 10}]

    assert times_of(jobs, ONE_GPU, "las") == [(0, 100_010), (57_700, 57_710)]


def test_las_does_not_preempt_within_a_level() -> None:
    jobs = [{"submit_time": 0, "run_time_s": 50_000}, {"submit_time": 40_000, "run_time_s": 10}]

    assert times_of(jobs, ONE_GPU, "las") == [(0, 50_000), (50_000, 50_010)]


def test_las_counts_every_gpu_of_a_gang() -> None:
    jobs = [{"submit_time": 0, "gpus": 2, "run_time_s": 40_000}, {"submit_time": 28_900, "gpus": 2, "run_time_s": 10}]

    # 16 GPU hours are reached after 28,800 s.
    assert times_of(jobs, TWO_GPUS, "las") == [(0, 40_010), (28_900, 28_910)]


def test_las_lets_go_a_waiting_job_the_moment_the_running_one_sinks() -> None:
    jobs = [{"submit_time": 0, "run_time_s": 60_000}, {"submit_time": 50_000, "run_time_s": 10}]

    assert times_of(jobs, ONE_GPU, "las") == [(0, 60_010), (57_600, 57_610)]


def fragmented(model: str | None, gpus: int) -> Trace:
    """Build eight jobs that leave two GPUs of each node of 8, for 1000 s, and then a gang."""
    gang = {"submit_time": 10, "gpus": gpus, "nodes_max": 0} | ({"model": model} if model else {})
    return make_trace([{"gpus": 6, "run_time_s": 1000}] * 8 + [gang])


@pytest.mark.parametrize(
    ("model", "gpus", "start_time", "nodes"),
    [
        pytest.param("bert", 16, 10, 8, id="another model on fragments"),
        pytest.param("bert", 4, 10, 2, id="another model on two nodes, though one would hold it"),
        pytest.param("bert", 2, 10, 1, id="another model on one node where that is free"),
        pytest.param("vgg16", 16, 1000, 2, id="a skewed model on whole nodes"),
        pytest.param("vgg16", 4, 1000, 1, id="a skewed model on one node"),
        pytest.param("recommendation (batch size 512)", 4, 1000, 1, id="a skewed model at any batch size"),
        pytest.param(None, 16, 1000, 2, id="a model that is not known on whole nodes"),
    ],
)
def test_las_consolidates_skewed_models_only(model: str | None, gpus: int, start_time: float, nodes: int) -> None:
    run = run_of(fragmented(model, gpus), "nodes=8,gpus=8", "las")

    gang = run.segments[run.segments["job"] == 8]
    assert gang["start_time"].tolist() == [start_time]
    assert gang["nodes"].tolist() == [nodes]


@pytest.mark.parametrize(
    ("model", "preempted"),
    [
        pytest.param("bert", [0, 0, 1, 1, 0], id="the last two, wherever they run"),
        pytest.param("vgg16", [1, 0, 1, 0, 0], id="the last of one node"),
    ],
)
def test_las_makes_room_on_one_node_for_skewed_models_only(model: str, preempted: list[int]) -> None:
    # Each node has one of the jobs of two GPUs and one of the others; at 72,000 s all have had their 16 GPU hours.
    sunk = [{"gpus": gpus, "run_time_s": 100_000} for gpus in (2, 2, 1, 1)]
    gang = {"submit_time": 72_000, "gpus": 2, "nodes_max": 0, "model": model}
    trace = make_trace([*sunk, gang])

    run = run_of(trace, "nodes=2,gpus=3", "las")

    assert run.outcomes["preemptions"].tolist() == preempted
    assert starts_and_ends(run)[4] == (72_000, 72_100)


def test_qssf_learns_from_what_the_same_user_ran_before() -> None:
    jobs = [
        {"submit_time": 0, "user": "ann", "run_time_s": 10},
        {"submit_time": 10, "user": "bob", "run_time_s": 1000},
        {"submit_time": 20, "user": "bob", "run_time_s": 20},  # bob's believed time: his own 20 s, none has ended
        {"submit_time": 30, "user": "ann", "run_time_s": 500},  # predicted: 10 s, as ann's first
    ]

    assert times_of(jobs, ONE_GPU, "qssf") == [(0, 10), (10, 1010), (1510, 1530), (1010, 1510)]


def test_a_gang_of_several_nodes_takes_whole_nodes() -> None:
    jobs = [
        {"submit_time": 0, "run_time_s": 100},
        {"submit_time": 1, "gpus": 4, "run_time_s": 10},
        {"submit_time": 2, "gpus": 2, "run_time_s": 10},
    ]

    # The first leaves two nodes idle: enough for the gang; the last waits for one of its nodes.
    assert times_of(jobs, "nodes=3,gpus=2", "fifo") == [(0, 100), (1, 11), (11, 21)]


def test_preemption_empties_the_nodes_where_least_is_lost() -> None:
    jobs = [
        {"submit_time": 0, "gpus": 2, "run_time_s": 1000},
        {"submit_time": 0, "gpus": 1, "run_time_s": 1000},
        {"submit_time": 0, "gpus": 2, "run_time_s": 1000},
        {"submit_time": 10, "gpus": 4, "run_time_s": 5},
    ]

    run = run_of(jobs, "nodes=3,gpus=2", "srtf")

    # Nodes hold 2, 1 and 2 GPUs' worth of work; the second is cheapest, then the first.
    assert run.outcomes["preemptions"].tolist() == [1, 1, 0, 0]
    assert starts_and_ends(run)[3] == (10, 15)


def test_a_job_larger_than_the_cluster_never_enters_the_queue() -> None:
    jobs = [{"submit_time": 0, "gpus": 64}, {"submit_time": 1}]

    run = run_of(jobs, TWO_GPUS, "fifo")

    assert run.outcomes["end"].tolist() == [End.IMPOSSIBLE, End.FINISHED]
    assert np.isnan(run.outcomes["start_time"][0])


def test_a_job_is_killed_at_its_time_limit() -> None:
    jobs = [{"submit_time": 0, "run_time_s": 100, "time_limit_s": 60}]

    run = run_of(jobs, ONE_GPU, "fifo", SimulationOptions(execution="measured"))

    assert starts_and_ends(run) == [(0, 60)]
    assert run.outcomes["end"].tolist() == [End.TIME_LIMIT]


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las"])
def test_a_gpu_type_is_waited_for(policy: str) -> None:
    cluster = Cluster(nodes=(NodeGroup(count=1, gpus=1, gpu_type="v100"), NodeGroup(count=1, gpus=1, gpu_type="a100")))
    asked = make_trace([{"submit_time": 0, "gpu_type": 0}, {"submit_time": 1, "gpu_type": 0}])
    trace = replace(asked, gpu_types=("a100",))

    assert times_of(trace, cluster, policy) == [(0, 100), (100, 200)]
