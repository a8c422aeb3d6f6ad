"""Where gangs go under policies that place jobs themselves, and who has to make room."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.sim.cluster import Cluster, NodeGroup
from advisor.sim.placement import fits, pick
from advisor.sim.preemption import make_room
from advisor.sim.state import State
from tests.sim.building import make_state, make_trace, occupy, picked, place, run_of, starts_and_ends

EIGHT = "nodes=8,gpus=4,leaf=4"


def state_with(gpus: int, in_use: list[int], cluster: str | Cluster = EIGHT) -> State:
    state = make_state(make_trace([{"gpus": gpus, "nodes_max": 0}]), cluster)
    occupy(state, in_use)
    return state


@pytest.mark.parametrize(
    ("gpus", "in_use", "expected"),
    [
        pytest.param(2, [1, 0, 2, 3, 0, 0, 0, 0], {2: 2}, id="the node that it fills"),
        pytest.param(1, [1, 0, 2, 0, 0, 0, 0, 0], {2: 1}, id="the fullest that holds it"),
        pytest.param(4, [1, 0, 2, 0, 0, 0, 0, 0], {1: 4}, id="the first of equal ones"),
        pytest.param(8, [0, 0, 0, 0, 4, 4, 0, 0], {6: 4, 7: 4}, id="the fullest leaf that suffices"),
        pytest.param(8, [4, 1, 0, 0, 4, 0, 4, 4], {2: 4, 3: 4}, id="only idle nodes"),
        pytest.param(12, [0, 0, 4, 4, 0, 4, 4, 4], {0: 4, 1: 4, 4: 4}, id="the emptiest leaf first, then the next"),
        pytest.param(12, [4, 4, 4, 0, 0, 0, 4, 4], {4: 4, 5: 4, 3: 4}, id="the emptiest leaf is the second"),
        pytest.param(16, [4, 4, 0, 0, 0, 0, 4, 4], {2: 4, 3: 4, 4: 4, 5: 4}, id="leaves that are equally empty"),
        pytest.param(6, [0, 0, 0, 1, 0, 2, 0, 0], {0: 4, 3: 2}, id="the rest on a node in use, under the same leaf"),
        pytest.param(6, [4, 0, 0, 4, 2, 4, 4, 4], {1: 4, 2: 2}, id="the rest near by rather than on a fuller node"),
        pytest.param(10, [4, 0, 4, 4, 0, 2, 4, 4], {1: 4, 4: 4, 5: 2}, id="the rest beside its leaf's other nodes"),
        pytest.param(10, [0, 4, 2, 4, 4, 0, 4, 4], {0: 4, 2: 2, 5: 4}, id="the rest goes in between"),
        pytest.param(6, [0, 4, 4, 4, 4, 4, 4, 2], {0: 4, 7: 2}, id="the rest under another leaf"),
    ],
)
def test_a_gang_goes_where_the_large_gaps_stay_whole(gpus: int, in_use: list[int], expected: dict[int, int]) -> None:
    state = state_with(gpus, in_use)

    found = pick(state, 0, gpus)

    assert found
    assert list(picked(state).items()) == list(expected.items())


@pytest.mark.parametrize(
    ("gpus", "in_use"),
    [
        pytest.param(4, [1, 1, 1, 1, 1, 1, 1, 1], id="no node has enough"),
        pytest.param(8, [0, 1, 1, 1, 1, 1, 1, 1], id="too few idle nodes"),
        pytest.param(6, [0, 3, 3, 3, 3, 3, 3, 3], id="no node for the rest"),
        pytest.param(8, [4, 4, 4, 4, 4, 4, 4, 0], id="too few GPUs"),
    ],
)
def test_a_gang_that_does_not_fit_is_told_so(gpus: int, in_use: list[int]) -> None:
    state = state_with(gpus, in_use)

    assert not pick(state, 0, gpus)


@pytest.mark.parametrize("request_of", [{"cpus_per_gpu": 40}, {"memory_mib_per_gpu": 600_000}])
def test_cpus_and_memory_count_as_gpus_do(request_of: dict[str, int]) -> None:
    # A node has 128 CPUs and 1 TiB: room for 3 of these GPUs, or for 1.
    trace = make_trace([{"gpus": 4, "nodes_min": 4, "nodes_max": 0, **request_of}])
    state = make_state(trace, EIGHT)

    assert fits(state, 0, 0, 1)
    assert not fits(state, 0, 0, 4)


def test_a_node_that_is_down_holds_nothing() -> None:
    state = state_with(1, [0, 4, 4, 4, 4, 4, 4, 4])
    state.nodes["is_up"][0] = 0

    assert not pick(state, 0, 1)


def test_a_gang_of_a_type_whose_nodes_are_small_takes_several_of_them() -> None:
    cluster = Cluster(nodes=(NodeGroup(count=1, gpus=4, gpu_type="a100"), NodeGroup(count=2, gpus=2, gpu_type="v100")))
    jobs = make_trace([{"gpus": 4, "nodes_max": 2, "gpu_type": 0}])
    trace = replace(jobs, gpu_types=("v100",))

    run = run_of(trace, cluster, "fifo")

    assert starts_and_ends(run) == [(0, 100)]


def test_preemption_takes_one_job_from_the_node_where_it_costs_least() -> None:
    jobs = [{"gpus": 3}, {"gpus": 2}, {"gpus": 1}, {"gpus": 2}, {"gpus": 2, "nodes_max": 0}]
    state = make_state(make_trace(jobs), "nodes=2,gpus=4")
    place(state, 0, {0: 3}, 0.0)
    place(state, 1, {1: 2}, 0.0)
    place(state, 2, {1: 1}, 0.0)
    state.jobs["key"] = [5, 3, 4, 0, 1]
    victims, costs = np.zeros(8, np.int32), np.zeros(2)

    count = make_room(state, victims, costs, 4, 1.0)

    # The second node has one GPU free and needs one more: its job of one GPU, which comes last there, is enough.
    assert victims[:count].tolist() == [2]


def test_preemption_spares_jobs_that_come_before() -> None:
    jobs = [{"gpus": 4}, {"gpus": 4}, {"gpus": 8, "nodes_max": 0}]
    state = make_state(make_trace(jobs), "nodes=2,gpus=4")
    place(state, 0, {0: 4}, 0.0)
    place(state, 1, {1: 4}, 0.0)
    victims, costs = np.zeros(8, np.int32), np.zeros(2)

    state.jobs["key"] = [5, 0, 1]
    too_few = make_room(state, victims, costs, 2, 1.0)
    state.jobs["key"] = [5, 2, 1]
    both = make_room(state, victims, costs, 2, 1.0)

    assert (too_few, both) == (0, 2)


def test_preemption_is_of_no_use_where_cpus_are_missing() -> None:
    jobs = [{"gpus": 4}, {"gpus": 4, "cpus_per_gpu": 100, "nodes_min": 4, "nodes_max": 0}]
    state = make_state(make_trace(jobs), "nodes=1,gpus=4")
    place(state, 0, {0: 4}, 0.0)
    state.jobs["key"] = [5, 1]

    count = make_room(state, np.zeros(4, np.int32), np.zeros(1), 1, 1.0)

    assert count == 0


def test_a_node_whose_jobs_come_before_is_not_emptied_though_gpus_would_suffice() -> None:
    jobs = [{"gpus": 4}, {"gpus": 4}, {"gpus": 2}, {"gpus": 2}, {"gpus": 8, "nodes_max": 0}]
    state = make_state(make_trace(jobs), "nodes=3,gpus=4")
    place(state, 0, {0: 4}, 0.0)
    place(state, 2, {1: 2}, 0.0)
    place(state, 3, {2: 2}, 0.0)
    state.jobs["key"] = [5, 5, 0, 0, 1]

    count = make_room(state, np.zeros(4, np.int32), np.zeros(3), 4, 1.0)

    # Four GPUs are free and four would be, but two nodes keep a job that comes before.
    assert count == 0


def test_a_gang_on_several_emptied_nodes_is_preempted_once() -> None:
    jobs = [{"gpus": 8, "nodes_max": 2}, {"gpus": 8, "nodes_max": 2}]
    state = make_state(make_trace(jobs), "nodes=2,gpus=4")
    place(state, 0, {0: 4, 1: 4}, 0.0)
    state.jobs["key"] = [5, 1]
    victims = np.zeros(4, np.int32)

    count = make_room(state, victims, np.zeros(2), 1, 1.0)

    assert victims[:count].tolist() == [0]


def test_a_small_job_makes_a_gang_over_several_nodes_go() -> None:
    jobs = [{"gpus": 6, "nodes_max": 2}, {"gpus": 2, "nodes_max": 1}, {"gpus": 4, "nodes_max": 1}]
    state = make_state(make_trace(jobs), "nodes=2,gpus=4")
    place(state, 0, {0: 4, 1: 2}, 0.0)
    place(state, 1, {1: 2}, 0.0)
    state.jobs["key"] = [5, 5, 1]
    victims = np.zeros(4, np.int32)

    count = make_room(state, victims, np.zeros(2), 2, 1.0)

    # Either node costs at least the gang; on the second the other job would have to go as well.
    assert victims[:count].tolist() == [0]
