"""Which nodes the model of Slurm gives a gang: the observations of `docs/fidelity.md`, section 1."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.sim.cluster import parse_cluster
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import per_node, pick_now
from advisor.sim.state import State
from tests.sim.building import make_state, make_trace, occupy, picked
from tests.sim.internals import leaves_picked

CLUSTER = parse_cluster("nodes=8,gpus=8,leaf=4")


def slurm_with(in_use: str, *, release: str = CLUSTER.slurm.release, **job: int) -> tuple[State, Slurm]:
    """Build a cluster with GPUs in use on n01 to n04 and, after the bar, n05 to n08; row 0 is the job."""
    trace, cluster = make_trace([job]), replace(CLUSTER, slurm=replace(CLUSTER.slurm, release=release))
    state = make_state(trace, cluster)
    occupy(state, [int(each) for each in in_use.replace("|", " ").split()])
    return state, build_slurm(state, trace, cluster)


def picks(in_use: str, *, release: str = CLUSTER.slurm.release, **job: int) -> dict[str, int]:
    """Return the GPUs that the job gets at once, by node."""
    state, slurm = slurm_with(in_use, release=release, **job)
    assert pick_now(state, slurm, 0, 100.0)
    return {f"n{node + 1:02d}": gpus for node, gpus in picked(state).items()}


@pytest.mark.parametrize(
    ("in_use", "nodes", "each", "got"),
    [
        pytest.param("2 6 0 0 | 0 0 0 0", 1, 1, "n01", id="not the fuller node"),
        pytest.param("7 2 6 0 | 0 0 0 0", 1, 2, "n02", id="the leaf with the fewest usable nodes, its first"),
        pytest.param("0 0 0 4 | 0 0 0 0", 1, 2, "n01", id="a node in part use is not preferred"),
        pytest.param("0 0 0 0 | 4 4 4 4", 1, 2, "n01", id="nor is a leaf in part use"),
        pytest.param("0 0 0 0 | 8 8 0 0", 1, 1, "n07", id="the second leaf has the fewest"),
        pytest.param("0 0 0 0 | 1 0 0 0", 1, 8, "n06", id="usable for this request"),
        pytest.param("8 0 0 0 | 8 0 8 0", 2, 8, "n06 n08", id="a leaf that fits exactly"),
        pytest.param("8 8 0 0 | 8 0 0 0", 3, 8, "n06 n07 n08", id="the only leaf that suffices"),
        pytest.param("4 4 0 0 | 8 8 0 0", 2, 4, "n07 n08", id="parts of nodes"),
        pytest.param("8 8 8 0 | 0 8 8 8", 2, 8, "n04 n05", id="one of each leaf"),
        pytest.param("8 8 7 7 | 8 8 8 8", 2, 1, "n03 n04", id="a single GPU of each"),
        pytest.param("8 8 0 0 | 8 8 0 0", 3, 8, "n03 n04 n07", id="equal leaves, the first whole"),
        pytest.param("8 8 8 0 | 8 8 0 0", 3, 8, "n07 n08 n04", id="the leaf with the most usable nodes first"),
        pytest.param("8 0 0 0 | 0 0 0 0", 5, 8, "n05 n06 n07 n08 n02", id="the second leaf whole"),
        pytest.param("0 0 0 0 | 8 0 0 0", 5, 8, "n01 n02 n03 n04 n06", id="the first leaf whole"),
    ],
)
def test_a_gang_with_a_node_count_goes_where_slurmctld_put_it(in_use: str, nodes: int, each: int, got: str) -> None:
    found = picks(in_use, gpus=nodes * each, nodes_min=nodes, nodes_max=nodes)

    assert found == dict.fromkeys(got.split(), each)


@pytest.mark.parametrize(
    ("in_use", "gpus", "got"),
    [
        pytest.param("6 4 0 0 | 0 0 0 0", 4, {"n02": 4}, id="three nodes of the first leaf have enough"),
        pytest.param("6 4 0 0 | 0 0 0 0", 12, {"n03": 8, "n04": 4}, id="two empty nodes"),
        pytest.param("6 4 0 0 | 6 6 8 4", 4, {"n08": 4}, id="one node of the second leaf has enough"),
        pytest.param("4 4 6 2 | 4 4 4 4", 8, {"n01": 4, "n04": 4}, id="the emptiest and one beside it"),
        pytest.param("4 4 6 2 | 4 4 4 4", 12, {"n01": 4, "n02": 4, "n04": 4}, id="and two beside it"),
        pytest.param("7 6 7 7 | 8 7 7 8", 6, {"n01": 1, "n02": 2, "n03": 1, "n04": 1, "n06": 1}, id="single GPUs"),
        pytest.param("7 6 7 0 | 8 7 7 0", 12, {"n04": 8, "n08": 4}, id="the emptiest of both leaves"),
    ],
)
def test_a_gang_without_a_node_count_goes_where_slurmctld_put_it(in_use: str, gpus: int, got: dict[str, int]) -> None:
    assert picks(in_use, gpus=gpus, nodes_max=0) == got


@pytest.mark.parametrize(
    ("in_use", "gpus", "nodes_min", "nodes_max"),
    [
        pytest.param("8 8 8 8 | 8 8 8 7", 2, 0, 0, id="too few GPUs in all"),
        pytest.param("7 7 7 7 | 8 8 8 8", 4, 0, 2, id="on more nodes than it may take"),
        pytest.param("8 8 8 8 | 8 8 8 4", 3, 3, 0, id="fewer nodes than it must take"),
        pytest.param("1 1 1 1 | 1 1 1 1", 8, 1, 1, id="no node has enough"),
        pytest.param("0 8 8 8 | 1 1 1 1", 16, 2, 2, id="one node has enough"),
    ],
)
def test_a_gang_that_cannot_start_gets_no_nodes(in_use: str, gpus: int, nodes_min: int, nodes_max: int) -> None:
    state, slurm = slurm_with(in_use, gpus=gpus, nodes_min=nodes_min, nodes_max=nodes_max)

    assert not pick_now(state, slurm, 0, 100.0)


def test_a_gang_with_a_least_node_count_spreads_to_it() -> None:
    got = picks("0 0 0 0 | 8 8 8 8", gpus=8, nodes_min=3, nodes_max=0)

    # Its GPUs fit one node; two more give one each.
    assert (sum(got.values()), len(got)) == (8, 3)


@pytest.mark.parametrize("first_in_use", [4, 7], ids=["in the order of nodes", "the last GPU of a node"])
def test_a_spread_gang_takes_a_single_gpu_of_the_first_node(first_in_use: int) -> None:
    got = picks(f"{first_in_use} 0 8 8 | 8 8 8 8", gpus=8, nodes_min=2, nodes_max=0)

    assert list(got.items()) == [("n01", 1), ("n02", 7)]


def test_no_gang_spreads_over_more_nodes_than_it_has_gpus() -> None:
    state, slurm = slurm_with("0 0 0 0 | 0 0 0 0", gpus=2, nodes_min=3, nodes_max=0)

    assert not pick_now(state, slurm, 0, 100.0)


def test_a_reserved_node_is_closed_to_what_ends_after_the_reservation_begins() -> None:
    state, slurm = slurm_with("0 8 8 8 | 8 8 8 8", gpus=1)
    slurm.first[0] = 0
    slurm.reservations[0] = (60.0, 120.0, -1, -1, 0)

    before, after = pick_now(state, slurm, 0, 59.0), pick_now(state, slurm, 0, 60.0)

    assert (before, after) == (True, False)


def test_an_open_gang_counts_only_gpus_for_which_there_are_cpus() -> None:
    # 128 CPUs of a node are enough for three GPUs.
    assert picks("0 0 8 8 | 8 8 8 8", gpus=6, nodes_max=0, cpus_per_gpu=40) == {"n01": 3, "n02": 3}


def test_leaves_of_a_pick_are_counted() -> None:
    state, slurm = slurm_with("8 8 0 0 | 8 8 0 0", gpus=24, nodes_min=3, nodes_max=3)

    pick_now(state, slurm, 0, 100.0)

    assert leaves_picked(state) == 2


@pytest.mark.parametrize(
    ("gpus", "nodes_min", "nodes_max", "each"),
    [(1, 0, 0, 1), (8, 2, 2, 4), (7, 2, 2, 0), (8, 0, 0, 0), (8, 1, 2, 0), (8, 1, 1, 8)],
)
def test_gpus_count_per_node_where_a_fixed_node_count_divides_them(
    gpus: int, nodes_min: int, nodes_max: int, each: int
) -> None:
    state = make_state(make_trace([{"gpus": gpus, "nodes_min": nodes_min, "nodes_max": nodes_max}]), CLUSTER)

    assert per_node(state, 0) == each
    assert np.array_equal(state.jobs["gpus"], [gpus])


@pytest.mark.parametrize(
    ("in_use", "gpus", "nodes_max", "older", "newer"),
    [
        pytest.param("0 0 0 0 | 8 8 0 0", 1, 1, "n07", "n01", id="the first node of all"),
        pytest.param("0 0 0 0 | 1 0 0 0", 8, 1, "n06", "n01", id="a whole node"),
        pytest.param("8 8 8 7 | 0 0 0 0", 1, 1, "n04", "n04", id="whatever its leaf offers"),
        pytest.param("7 2 6 0 | 0 0 0 0", 2, 1, "n02", "n02", id="the first that is usable"),
        pytest.param("6 4 0 0 | 6 6 8 4", 4, 0, "n08", "n08", id="by leaves without a node count"),
    ],
)
def test_job_of_one_node_ignores_leaves(in_use: str, gpus: int, nodes_max: int, older: str, newer: str) -> None:
    for release, expected in (("22.05", older), ("24.11", older), ("26.05", newer)):
        assert list(picks(in_use, release=release, gpus=gpus, nodes_max=nodes_max)) == [expected]


@pytest.mark.parametrize(
    ("in_use", "gpus", "older", "newer"),
    [
        pytest.param("4 4 6 2 | 4 4 4 4", 8, {"n01": 4, "n04": 4}, {"n01": 2, "n04": 6}, id="two nodes"),
        pytest.param(
            "4 4 6 2 | 4 4 4 4", 12, {"n01": 4, "n02": 4, "n04": 4}, {"n01": 4, "n02": 2, "n04": 6}, id="three nodes"
        ),
        pytest.param("7 6 7 0 | 8 7 7 0", 12, {"n04": 8, "n08": 4}, {"n04": 8, "n08": 4}, id="equal nodes in order"),
    ],
)
def test_open_gang_fills_the_emptiest_of_its_nodes_first(
    in_use: str, gpus: int, older: dict[str, int], newer: dict[str, int]
) -> None:
    for release, expected in (("22.05", older), ("24.11", newer), ("26.05", newer)):
        assert picks(in_use, release=release, gpus=gpus, nodes_max=0) == expected
