"""Where gangs go under policies that place jobs themselves, and who has to make room."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from advisor.sim.cluster import Cluster, NodeGroup
from advisor.sim.engine.tables import Victims, build_victims
from advisor.sim.policies.engine_calls import make_room_close, pick
from advisor.sim.state import State
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_state, make_trace, occupy, picked, place, times_of
from tests.sim.internals import make_room, make_room_anywhere, pick_anywhere, pick_leaf, usable_gpus

EIGHT = "nodes=8,gpus=4,leaf=4"


def preempted(
    choose: Callable[[State, Victims, int, float], int],
    jobs: Trace | Sequence[Mapping[str, Any]],
    cluster: str | Cluster,
    *gpus_by_node: Mapping[int, int],
    keys: Sequence[float],
) -> list[int]:
    """Let all jobs but the last run on these nodes; return which of them make room for the last, whose key is 1."""
    state = make_state(jobs if isinstance(jobs, Trace) else make_trace(jobs), cluster)
    for row, gpus in enumerate(gpus_by_node):
        place(state, row, gpus, 0.0)
    state.jobs["key"] = [*keys, 1]
    victims = build_victims(state)
    count = choose(state, victims, len(gpus_by_node), 1.0)
    return [int(row) for row in victims.rows[:count]]


def state_with(gpus: int, in_use: list[int], cluster: str | Cluster = EIGHT) -> State:
    state = make_state(make_trace([{"gpus": gpus, "nodes_max": 0}]), cluster)
    occupy(state, in_use)
    return state


def picks(choose: Callable[[State, int, int], bool], gpus: int, in_use: list[int]) -> list[tuple[int, int]]:
    """Return the nodes that a gang gets and the GPUs on each, in their order."""
    state = state_with(gpus, in_use)
    assert choose(state, 0, gpus)
    return list(picked(state).items())


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
    assert picks(pick, gpus, in_use) == list(expected.items())


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
    assert picks(pick_leaf, gpus, in_use) == list(expected.items())


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
    assert picks(pick_anywhere, gpus, in_use) == list(expected.items())


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
    jobs = [{"gpus": 3}, {"gpus": 2}, {"gpus": 1}, {"gpus": 2, "nodes_max": 0}]

    # The second node has one GPU free and needs one more: its job of one GPU, which comes last there, is enough.
    assert preempted(make_room, jobs, "nodes=2,gpus=4", {0: 3}, {1: 2}, {1: 1}, keys=[5, 3, 4]) == [2]


@pytest.mark.parametrize(("key", "count"), [(0, 0), (2, 2)])
def test_preemption_spares_jobs_that_come_before(key: float, count: int) -> None:
    jobs = [{"gpus": 4}, {"gpus": 4}, {"gpus": 8, "nodes_max": 0}]

    assert len(preempted(make_room, jobs, "nodes=2,gpus=4", {0: 4}, {1: 4}, keys=[5, key])) == count


def test_preemption_is_of_no_use_where_cpus_are_missing() -> None:
    jobs = [{"gpus": 4}, {"gpus": 4, "cpus_per_gpu": 100, "nodes_min": 4, "nodes_max": 0}]

    assert preempted(make_room, jobs, "nodes=1,gpus=4", {0: 4}, keys=[5]) == []


@pytest.mark.parametrize(("gpus", "nodes_max"), [(4, 1), (8, 0)], ids=["one node", "whole nodes"])
@pytest.mark.parametrize(("request_of", "fits_node"), [(0, True), (1, False)], ids=["all of it", "one more"])
@pytest.mark.parametrize(("field", "share"), [("cpus_per_gpu", 32), ("memory_mib_per_gpu", 262_144)])
def test_preemption_helps_a_gang_that_takes_all_of_a_node(
    gpus: int, nodes_max: int, request_of: int, fits_node: bool, field: str, share: int
) -> None:
    gang = {"gpus": gpus, "nodes_max": nodes_max, field: share + request_of}

    stopped = preempted(make_room, [{"gpus": 4}, {"gpus": 4}, gang], "nodes=2,gpus=4", {0: 4}, {1: 4}, keys=[5, 5])

    assert len(stopped) == (gpus // 4 if fits_node else 0)


def test_a_node_whose_jobs_come_before_is_not_emptied_though_gpus_would_suffice() -> None:
    jobs = [{"gpus": 4}, {"gpus": 2}, {"gpus": 2}, {"gpus": 8, "nodes_max": 0}]

    # Four GPUs are free and four would be, but two nodes keep a job that comes before.
    assert preempted(make_room, jobs, "nodes=3,gpus=4", {0: 4}, {1: 2}, {2: 2}, keys=[5, 0, 0]) == []


def test_a_gang_on_several_emptied_nodes_is_preempted_once() -> None:
    jobs = [{"gpus": 8, "nodes_max": 2}, {"gpus": 8, "nodes_max": 2}]

    assert preempted(make_room, jobs, "nodes=2,gpus=4", {0: 4, 1: 4}, keys=[5]) == [0]


def test_a_small_job_makes_a_gang_over_several_nodes_go() -> None:
    jobs = [{"gpus": 6, "nodes_max": 2}, {"gpus": 2, "nodes_max": 1}, {"gpus": 4, "nodes_max": 1}]

    # Either node costs at least the gang; on the second the other job would have to go as well.
    assert preempted(make_room, jobs, "nodes=2,gpus=4", {0: 4, 1: 2}, {1: 2}, keys=[5, 5]) == [0]


@pytest.mark.parametrize(("choose", "stopped"), [(make_room, [3, 4]), (make_room_close, [3, 2])])
def test_room_is_made_for_a_gang_under_the_leaf_where_that_costs_least(
    choose: Callable[[State, Victims, int, float], int], stopped: list[int]
) -> None:
    # Leaves of two nodes: the first would cost 3 + 3 GPUs, the second 4 + 1, and two single nodes elsewhere only 1 + 2.
    sizes = [3, 3, 4, 1, 2, 4]
    jobs = [*({"gpus": gpus} for gpus in sizes), {"gpus": 8, "nodes_max": 0}]
    held = [{node: gpus} for node, gpus in enumerate(sizes)]

    assert preempted(choose, jobs, "nodes=6,gpus=4,leaf=2", *held, keys=[5] * 6) == stopped


@pytest.mark.parametrize(
    ("keys", "stopped"),
    [pytest.param([5, 0, 0, 5], [], id="over leaves only"), pytest.param([5, 0, 5, 5], [2, 3], id="in the second")],
)
def test_room_is_made_under_no_leaf_where_one_of_its_nodes_keeps_a_job(keys: list[float], stopped: list[int]) -> None:
    jobs = [{"gpus": 4}] * 4 + [{"gpus": 8, "nodes_max": 0}]
    held = [{node: 4} for node in range(4)]

    assert preempted(make_room_close, jobs, "nodes=4,gpus=4,leaf=2", *held, keys=keys) == stopped


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [pytest.param(3, [1], id="on one node"), pytest.param(12, [1, 0, 2], id="over more nodes than a leaf has")],
)
def test_where_there_is_nothing_closer_room_is_made_anywhere(gpus: int, expected: list[int]) -> None:
    jobs = [{"gpus": 4}, {"gpus": 3}, {"gpus": 4}, {"gpus": gpus, "nodes_max": 0}]
    held = [{0: 4}, {1: 3}, {2: 4}]

    assert preempted(make_room_close, jobs, "nodes=3,gpus=4,leaf=2", *held, keys=[5, 5, 5]) == expected


@pytest.mark.parametrize(
    ("keys", "stopped"),
    [pytest.param([4, 6, 5], [1], id="the highest key"), pytest.param([5, 5, 5], [2], id="the last of equal ones")],
)
def test_for_a_gang_that_goes_anywhere_the_highest_keys_make_room_wherever_they_run(
    keys: list[float], stopped: list[int]
) -> None:
    jobs = [{"gpus": 2}, {"gpus": 2}, {"gpus": 2}, {"gpus": 4, "nodes_max": 0}]

    # One GPU is free on each node, so one more is needed.
    assert preempted(make_room_anywhere, jobs, "nodes=3,gpus=3", {0: 2}, {1: 2}, {2: 2}, keys=keys) == stopped


def test_a_gang_that_goes_anywhere_needs_no_room_where_enough_is_free() -> None:
    jobs = [{"gpus": 2}, {"gpus": 2}, {"gpus": 2, "nodes_max": 0}]

    assert preempted(make_room_anywhere, jobs, "nodes=2,gpus=3", {0: 2}, {1: 2}, keys=[5, 5]) == []


@pytest.mark.parametrize(("keys", "stopped"), [([5, 0, 9], []), ([5, 6, 9], [1, 0])])
def test_a_gang_that_goes_anywhere_gets_no_room_from_jobs_that_come_before_or_run_where_it_cannot(
    keys: list[float], stopped: list[int]
) -> None:
    groups = (NodeGroup(count=2, gpus=2, gpu_type="v100"), NodeGroup(count=1, gpus=2, gpu_type="a100"))
    jobs = make_trace([{"gpus": 2}, {"gpus": 2}, {"gpus": 2}, {"gpus": 4, "nodes_max": 0, "gpu_type": 0}])
    trace = replace(jobs, gpu_types=("v100",))

    assert preempted(make_room_anywhere, trace, Cluster(nodes=groups), {0: 2}, {1: 2}, {2: 2}, keys=keys) == stopped
