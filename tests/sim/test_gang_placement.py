"""Where gangs go under policies that place jobs themselves, and who has to make room."""

from dataclasses import replace

import pytest

from advisor.sim.cluster import Cluster, NodeGroup
from advisor.sim.engine.tables import build_victims
from advisor.sim.policies.engine_calls import make_room_close, pick
from advisor.sim.state import State
from tests.sim.building import make_state, make_trace, occupy, picked, place, times_of
from tests.sim.internals import make_room, make_room_anywhere, pick_anywhere, pick_leaf, usable_gpus

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

    assert pick(state, 0, 1)
    assert not pick(state, 0, 4)


def test_a_node_that_is_down_holds_nothing() -> None:
    state = state_with(1, [0, 4, 4, 4, 4, 4, 4, 4])
    state.nodes["is_up"][0] = 0

    assert not pick(state, 0, 1)


@pytest.mark.parametrize(
    ("gpus", "in_use", "expected"),
    [
        pytest.param(4, [2, 2, 4, 4, 1, 3, 3, 3], {0: 2, 1: 2}, id="the leaf with the fewest that has enough"),
        pytest.param(5, [2, 2, 4, 4, 1, 3, 3, 3], {4: 3, 5: 1, 6: 1}, id="the only leaf that has enough"),
        pytest.param(6, [3, 2, 3, 1, 4, 4, 4, 4], {3: 3, 1: 2, 0: 1}, id="the largest parts first"),
        pytest.param(5, [2, 1, 3, 0, 4, 4, 4, 4], {3: 4, 2: 1}, id="of the last part the smallest that suffices"),
        pytest.param(2, [2, 2, 4, 4, 2, 2, 4, 4], {0: 2}, id="the first of equal ones"),
        pytest.param(8, [4, 4, 0, 0, 0, 0, 0, 1], {2: 4, 3: 4}, id="whole nodes where they are"),
    ],
)
def test_a_gang_spread_under_one_leaf_takes_few_parts(gpus: int, in_use: list[int], expected: dict[int, int]) -> None:
    state = state_with(gpus, in_use)

    found = pick_leaf(state, 0, gpus)

    assert found
    assert list(picked(state).items()) == list(expected.items())


@pytest.mark.parametrize(
    ("gpus", "in_use", "expected"),
    [
        pytest.param(5, [3, 3, 3, 4, 2, 2, 2, 4], {4: 2, 5: 2, 6: 1}, id="one leaf if that has enough"),
        pytest.param(
            8, [3, 3, 3, 4, 2, 2, 2, 4], {4: 2, 5: 2, 6: 2, 0: 1, 1: 1}, id="the leaf with most, then the next"
        ),
        pytest.param(5, [2, 2, 4, 4, 4, 2, 2, 4], {0: 2, 1: 2, 5: 1}, id="leaves that have equally many"),
        pytest.param(9, [3, 3, 3, 4, 2, 2, 2, 4], {4: 2, 5: 2, 6: 2, 0: 1, 1: 1, 2: 1}, id="all there is"),
    ],
)
def test_a_gang_spread_anywhere_takes_few_leaves(gpus: int, in_use: list[int], expected: dict[int, int]) -> None:
    state = state_with(gpus, in_use)

    found = pick_anywhere(state, 0, gpus)

    assert found
    assert list(picked(state).items()) == list(expected.items())


def test_a_gang_does_not_fit_under_a_leaf_that_has_too_little() -> None:
    state = state_with(8, [4, 4, 1, 0, 4, 4, 1, 0])

    assert not pick_leaf(state, 0, 8)
    assert pick_anywhere(state, 0, 8)


def test_what_nodes_that_are_down_have_is_of_no_use_to_a_spread_gang() -> None:
    state = state_with(4, [2, 2, 4, 4, 2, 2, 4, 4])
    state.nodes["is_up"][:2] = 0

    under_a_leaf = pick_leaf(state, 0, 4)

    assert under_a_leaf
    assert picked(state) == {4: 2, 5: 2}
    assert not pick_anywhere(state, 0, 5)
    assert not pick_anywhere(state, 0, 9)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({}, [4, 3, 0], id="the free GPUs of nodes that are up"),
        pytest.param({"cpus_per_gpu": 48}, [2, 2, 0], id="as far as CPUs go"),
        pytest.param({"memory_mib_per_gpu": 400_000}, [2, 2, 0], id="as far as memory goes"),
        pytest.param({"memory_mib_per_gpu": 300_000, "cpus_per_gpu": 100}, [1, 1, 0], id="the least of all"),
    ],
)
def test_usable_is_what_a_part_of_a_gang_could_have(asked: dict[str, int], expected: list[int]) -> None:
    state = make_state(make_trace([{"gpus": 4, "nodes_min": 4, "nodes_max": 0, **asked}]), "nodes=3,gpus=4")
    occupy(state, [0, 1, 0])
    state.nodes["is_up"][2] = 0

    assert [usable_gpus(state, 0, node) for node in range(3)] == expected


def test_nodes_of_another_type_are_of_no_use() -> None:
    groups = (NodeGroup(count=1, gpus=4, gpu_type="a100"), NodeGroup(count=1, gpus=4, gpu_type="v100"))
    trace = replace(make_trace([{"gpu_type": 0}]), gpu_types=("v100",))
    state = make_state(trace, Cluster(nodes=groups))

    assert [usable_gpus(state, 0, node) for node in range(2)] == [0, 4]


def test_a_gang_of_a_type_whose_nodes_are_small_takes_several_of_them() -> None:
    cluster = Cluster(nodes=(NodeGroup(count=1, gpus=4, gpu_type="a100"), NodeGroup(count=2, gpus=2, gpu_type="v100")))
    jobs = make_trace([{"gpus": 4, "nodes_max": 2, "gpu_type": 0}])
    trace = replace(jobs, gpu_types=("v100",))

    assert times_of(trace, cluster, "fifo") == [(0, 100)]


def test_preemption_takes_one_job_from_the_node_where_it_costs_least() -> None:
    jobs = [{"gpus": 3}, {"gpus": 2}, {"gpus": 1}, {"gpus": 2}, {"gpus": 2, "nodes_max": 0}]
    state = make_state(make_trace(jobs), "nodes=2,gpus=4")
    place(state, 0, {0: 3}, 0.0)
    place(state, 1, {1: 2}, 0.0)
    place(state, 2, {1: 1}, 0.0)
    state.jobs["key"] = [5, 3, 4, 0, 1]
    victims = build_victims(state)

    count = make_room(state, victims, 4, 1.0)

    # The second node has one GPU free and needs one more: its job of one GPU, which comes last there, is enough.
    assert victims.rows[:count].tolist() == [2]


def test_preemption_spares_jobs_that_come_before() -> None:
    jobs = [{"gpus": 4}, {"gpus": 4}, {"gpus": 8, "nodes_max": 0}]
    state = make_state(make_trace(jobs), "nodes=2,gpus=4")
    place(state, 0, {0: 4}, 0.0)
    place(state, 1, {1: 4}, 0.0)
    victims = build_victims(state)

    state.jobs["key"] = [5, 0, 1]
    too_few = make_room(state, victims, 2, 1.0)
    state.jobs["key"] = [5, 2, 1]
    both = make_room(state, victims, 2, 1.0)

    assert (too_few, both) == (0, 2)


def test_preemption_is_of_no_use_where_cpus_are_missing() -> None:
    jobs = [{"gpus": 4}, {"gpus": 4, "cpus_per_gpu": 100, "nodes_min": 4, "nodes_max": 0}]
    state = make_state(make_trace(jobs), "nodes=1,gpus=4")
    place(state, 0, {0: 4}, 0.0)
    state.jobs["key"] = [5, 1]

    count = make_room(state, build_victims(state), 1, 1.0)

    assert count == 0


@pytest.mark.parametrize(("gpus", "nodes_max"), [(4, 1), (8, 0)], ids=["one node", "whole nodes"])
@pytest.mark.parametrize(("request_of", "fits_node"), [(0, True), (1, False)], ids=["all of it", "one more"])
@pytest.mark.parametrize(("field", "share"), [("cpus_per_gpu", 32), ("memory_mib_per_gpu", 262_144)])
def test_preemption_helps_a_gang_that_takes_all_of_a_node(
    gpus: int, nodes_max: int, request_of: int, fits_node: bool, field: str, share: int
) -> None:
    gang = {"gpus": gpus, "nodes_max": nodes_max, field: share + request_of}
    state = make_state(make_trace([{"gpus": 4}, {"gpus": 4}, gang]), "nodes=2,gpus=4")
    place(state, 0, {0: 4}, 0.0)
    place(state, 1, {1: 4}, 0.0)
    state.jobs["key"] = [5, 5, 1]

    count = make_room(state, build_victims(state), 2, 1.0)

    assert count == (gpus // 4 if fits_node else 0)


def test_a_node_whose_jobs_come_before_is_not_emptied_though_gpus_would_suffice() -> None:
    jobs = [{"gpus": 4}, {"gpus": 4}, {"gpus": 2}, {"gpus": 2}, {"gpus": 8, "nodes_max": 0}]
    state = make_state(make_trace(jobs), "nodes=3,gpus=4")
    place(state, 0, {0: 4}, 0.0)
    place(state, 2, {1: 2}, 0.0)
    place(state, 3, {2: 2}, 0.0)
    state.jobs["key"] = [5, 5, 0, 0, 1]

    count = make_room(state, build_victims(state), 4, 1.0)

    # Four GPUs are free and four would be, but two nodes keep a job that comes before.
    assert count == 0


def test_a_gang_on_several_emptied_nodes_is_preempted_once() -> None:
    jobs = [{"gpus": 8, "nodes_max": 2}, {"gpus": 8, "nodes_max": 2}]
    state = make_state(make_trace(jobs), "nodes=2,gpus=4")
    place(state, 0, {0: 4, 1: 4}, 0.0)
    state.jobs["key"] = [5, 1]
    victims = build_victims(state)

    count = make_room(state, victims, 1, 1.0)

    assert victims.rows[:count].tolist() == [0]


def test_a_small_job_makes_a_gang_over_several_nodes_go() -> None:
    jobs = [{"gpus": 6, "nodes_max": 2}, {"gpus": 2, "nodes_max": 1}, {"gpus": 4, "nodes_max": 1}]
    state = make_state(make_trace(jobs), "nodes=2,gpus=4")
    place(state, 0, {0: 4, 1: 2}, 0.0)
    place(state, 1, {1: 2}, 0.0)
    state.jobs["key"] = [5, 5, 1]
    victims = build_victims(state)

    count = make_room(state, victims, 2, 1.0)

    # Either node costs at least the gang; on the second the other job would have to go as well.
    assert victims.rows[:count].tolist() == [0]


def test_room_is_made_for_a_gang_under_the_leaf_where_that_costs_least() -> None:
    # Leaves of two nodes: the first would cost 3 + 3 GPUs, the second 4 + 1, and two single nodes elsewhere only 1 + 2.
    sizes = [3, 3, 4, 1, 2, 4]
    jobs = [*({"gpus": gpus} for gpus in sizes), {"gpus": 8, "nodes_max": 0}]
    state = make_state(make_trace(jobs), "nodes=6,gpus=4,leaf=2")
    for row, gpus in enumerate(sizes):
        place(state, row, {row: gpus}, 0.0)
    state.jobs["key"] = 5.0
    victims = build_victims(state)

    anywhere = make_room(state, victims, 6, 1.0)
    anywhere_victims = victims.rows[:anywhere].tolist()
    close = make_room_close(state, victims, 6, 1.0)

    assert anywhere_victims == [3, 4]
    assert victims.rows[:close].tolist() == [3, 2]


def test_room_is_made_under_no_leaf_where_one_of_its_nodes_keeps_a_job() -> None:
    jobs = [{"gpus": 4}] * 4 + [{"gpus": 8, "nodes_max": 0}]
    state = make_state(make_trace(jobs), "nodes=4,gpus=4,leaf=2")
    for row in range(4):
        place(state, row, {row: 4}, 0.0)
    victims = build_victims(state)

    state.jobs["key"] = [5, 0, 0, 5, 1]
    over_leaves_only = make_room_close(state, victims, 4, 1.0)
    state.jobs["key"] = [5, 0, 5, 5, 1]
    in_the_second = make_room_close(state, victims, 4, 1.0)

    assert over_leaves_only == 0
    assert victims.rows[:in_the_second].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [pytest.param(3, [1], id="on one node"), pytest.param(12, [1, 0, 2], id="over more nodes than a leaf has")],
)
def test_where_there_is_nothing_closer_room_is_made_anywhere(gpus: int, expected: list[int]) -> None:
    jobs = [{"gpus": 4}, {"gpus": 3}, {"gpus": 4}, {"gpus": gpus, "nodes_max": 0}]
    state = make_state(make_trace(jobs), "nodes=3,gpus=4,leaf=2")
    for row in range(3):
        place(state, row, {row: int(state.jobs["gpus"][row])}, 0.0)
    state.jobs["key"] = [5, 5, 5, 1]
    victims = build_victims(state)

    count = make_room_close(state, victims, 3, 1.0)

    assert victims.rows[:count].tolist() == expected


def test_for_a_gang_that_goes_anywhere_the_highest_keys_make_room_wherever_they_run() -> None:
    jobs = [{"gpus": 2}, {"gpus": 2}, {"gpus": 2}, {"gpus": 2}, {"gpus": 4, "nodes_max": 0}]
    state = make_state(make_trace(jobs), "nodes=3,gpus=3")
    for row, node in enumerate((0, 1, 2)):
        place(state, row, {node: 2}, 0.0)
    victims = build_victims(state)

    state.jobs["key"] = [4, 6, 5, 0, 1]
    one = make_room_anywhere(state, victims, 4, 1.0)
    highest = victims.rows[:one].tolist()
    state.jobs["key"] = [5, 5, 5, 0, 1]
    make_room_anywhere(state, victims, 4, 1.0)
    last_of_equal_ones = int(victims.rows[0])

    # One GPU is free on each node, so one more is needed.
    assert highest == [1]
    assert last_of_equal_ones == 2


def test_a_gang_that_goes_anywhere_needs_no_room_where_enough_is_free() -> None:
    jobs = [{"gpus": 2}, {"gpus": 2}, {"gpus": 2, "nodes_max": 0}]
    state = make_state(make_trace(jobs), "nodes=2,gpus=3")
    place(state, 0, {0: 2}, 0.0)
    place(state, 1, {1: 2}, 0.0)
    state.jobs["key"] = [5, 5, 1]

    assert make_room_anywhere(state, build_victims(state), 2, 1.0) == 0


def test_a_gang_that_goes_anywhere_gets_no_room_from_jobs_that_come_before_or_run_where_it_cannot() -> None:
    groups = (NodeGroup(count=2, gpus=2, gpu_type="v100"), NodeGroup(count=1, gpus=2, gpu_type="a100"))
    jobs = [{"gpus": 2}, {"gpus": 2}, {"gpus": 2}, {"gpus": 4, "nodes_max": 0, "gpu_type": 0}]
    trace = replace(make_trace(jobs), gpu_types=("v100",))
    state = make_state(trace, Cluster(nodes=groups))
    for row in range(3):
        place(state, row, {row: 2}, 0.0)
    victims = build_victims(state)

    state.jobs["key"] = [5, 0, 9, 1]
    too_few = make_room_anywhere(state, victims, 3, 1.0)
    state.jobs["key"] = [5, 6, 9, 1]
    both = make_room_anywhere(state, victims, 3, 1.0)

    assert too_few == 0
    assert victims.rows[:both].tolist() == [1, 0]
