"""What links give a gang, tier by tier, on cases small enough to compute by hand."""

from typing import Any

import numpy as np
import pytest

from advisor.sim.cluster import Cluster, Network, NodeGroup
from advisor.sim.profiles import exposed_s, inflation
from tests.sim.building import (
    contended_gbps,
    ended,
    ends,
    make_state,
    make_trace,
    pick_of,
    place,
    profile,
    run_out,
    submit,
)
from tests.sim.internals import best_gbps, picked_inflation, start_as_guest

NIC_GBPS = 100.0
PCIE_GBPS = 128.0
NVSWITCH_GBPS = 2400.0


def leaves_of_four(nodes: int = 8, gpus: int = 2, **network: Any) -> Cluster:
    """Leaves of four nodes, 100 Gb/s each."""
    return Cluster(
        nodes=(NodeGroup(count=nodes, gpus=gpus, leaf=4),), network=Network(**{"nic_gbps": NIC_GBPS, **network})
    )


def gangs_of(*models: str, run_time_s: float = 1000.0, **asked: Any) -> list[dict[str, Any]]:
    """Two GPUs for 1000 s each."""
    return [{"gpus": 2, "nodes_max": 0, "run_time_s": run_time_s, "model": model, **asked} for model in models]


def test_gangs_on_one_node_divide_its_pcie_as_long_as_both_run() -> None:
    jobs = [*gangs_of("gpt2"), *gangs_of("bert", run_time_s=100.0)]
    state = ended(jobs, leaves_of_four(gpus=4, node_gbps=PCIE_GBPS, node_shared=True), {0: 2}, {0: 2})

    # Alone each has 128 Gb/s, which is what its run time refers to; together 128 / (1 + pressure of the other).
    gpt2, bert = profile("gpt2"), profile("bert")
    beside_bert = contended_gbps(PCIE_GBPS, float(bert["node_pressure"]))
    beside_gpt2 = contended_gbps(PCIE_GBPS, float(gpt2["node_pressure"]))
    slower = inflation(gpt2, 2, 2, beside_bert, 2, PCIE_GBPS)
    short = 100.0 * inflation(bert, 2, 2, beside_gpt2, 2, PCIE_GBPS)
    assert slower > 1.0
    assert ends(state) == pytest.approx([1000.0 + short - short / slower, short])
    shared, alone = exposed_s(gpt2, 2, 2, beside_bert), exposed_s(gpt2, 2, 2, PCIE_GBPS)
    exposed = 2 * (short * shared / (1 + shared) + (ends(state)[0] - short) * alone / (1 + alone))
    assert state.jobs["exposed_gpu_s"][0] == pytest.approx(exposed)


def test_gangs_on_one_nvswitch_do_not_slow_each_other() -> None:
    state = ended(gangs_of("gpt2", "gpt2"), leaves_of_four(gpus=4, node_gbps=NVSWITCH_GBPS), {0: 2}, {0: 2})

    # One node is the best placement, so the run time is that of the trace; 2 (2 - 1) / 2 of the traffic is waited for.
    exposed = float(profile("gpt2")["traffic_gbps"]) / NVSWITCH_GBPS
    assert ends(state) == [1000.0, 1000.0]
    assert state.jobs["exposed_gpu_s"] == pytest.approx([2000.0 * exposed / (1.0 + exposed)] * 2)


def test_one_gpu_sends_nothing_over_pcie() -> None:
    jobs = [*gangs_of("gpt2"), *gangs_of("gpt2", gpus=1)]
    state = ended(jobs, leaves_of_four(gpus=4, node_gbps=PCIE_GBPS, node_shared=True), {0: 2}, {0: 1})

    assert ends(state) == [1000.0, 1000.0]
    assert state.jobs["exposed_gpu_s"][1] == 0.0


def test_a_gang_spread_for_no_need_is_compared_with_what_it_waits_for_on_one_node() -> None:
    state = ended(gangs_of("gpt2"), leaves_of_four(node_gbps=PCIE_GBPS, nic_gbps=10.0), {0: 1, 1: 1})

    traffic_gbps = float(profile("gpt2")["traffic_gbps"])
    assert ends(state) == pytest.approx([1000.0 * (1.0 + traffic_gbps / 10.0) / (1.0 + traffic_gbps / PCIE_GBPS)])


def test_a_gang_over_two_nodes_takes_its_part_of_their_pcie() -> None:
    jobs = [*gangs_of("gpt2", gpus=4, nodes_min=2), *gangs_of("gpt2")]
    state = make_state(make_trace(jobs), leaves_of_four(gpus=4, node_gbps=PCIE_GBPS, node_shared=True))

    place(state, 0, {0: 2, 1: 2}, 0.0)
    place(state, 1, {0: 2}, 0.0)
    rates = state.jobs["rate"].tolist()

    # The NICs are the first gang's own, 100 Gb/s each; the PCIe of node 0 leaves it less.
    gpt2 = profile("gpt2")
    left_gbps = contended_gbps(PCIE_GBPS, float(gpt2["node_pressure"]))
    assert left_gbps < NIC_GBPS
    assert rates == pytest.approx(
        [1.0 / inflation(gpt2, 4, 2, left_gbps, 2, PCIE_GBPS), 1.0 / inflation(gpt2, 2, 2, left_gbps, 2, PCIE_GBPS)]
    )


def test_a_node_slower_than_its_nic_is_what_a_gang_of_several_nodes_waits_for() -> None:
    state = ended(gangs_of("gpt2", gpus=4), leaves_of_four(node_gbps=64.0), {0: 2, 1: 2})

    # Two nodes are the fewest that hold it, so this is also the best that it can have.
    exposed = 1.5 * float(profile("gpt2")["traffic_gbps"]) / 64.0
    assert ends(state) == [1000.0]
    assert state.jobs["exposed_gpu_s"] == pytest.approx([4000.0 * exposed / (1.0 + exposed)])


@pytest.mark.parametrize("link", ["oversubscription", "spine_oversubscription"])
@pytest.mark.parametrize(("ratio", "share_gbps"), [(1.0, 100.0), (4.0, 50.0), (10.0, 20.0)])
def test_an_oversubscribed_uplink_or_spine_is_divided(link: str, ratio: float, share_gbps: float) -> None:
    network: dict[str, Any] = {link: ratio}

    state = ended(gangs_of("gpt2", "gpt2", gpus=4), leaves_of_four(**network), {0: 2, 4: 2}, {1: 2, 5: 2})

    # An uplink carries 4 x 100 / ratio for two gangs with one node each, the spine 2 x 400 / ratio for four nodes, and
    # a NIC no more than 100.
    assert ends(state) == pytest.approx([1000.0 * inflation(profile("gpt2"), 4, 2, share_gbps, 2, NIC_GBPS)] * 2)


def test_gangs_under_different_leaves_divide_a_spine_that_binds() -> None:
    jobs = [*gangs_of("gpt2", gpus=4), *gangs_of("gpt2", gpus=4, run_time_s=300.0)]
    cluster = leaves_of_four(nodes=16, oversubscription=4.0, spine_oversubscription=2.0)
    state = ended(jobs, cluster, {0: 2, 4: 2}, {8: 2, 12: 2})

    # Four uplinks of 100 Gb/s over a spine of 200: two loaded ones have all they carry, four have half of it.
    parted = 300.0 * inflation(profile("gpt2"), 4, 2, 50.0, 2, NIC_GBPS)
    assert ends(state) == pytest.approx([parted + 700.0, parted])


@pytest.mark.parametrize(("spine_oversubscription", "is_paced_anew"), [(1.0, False), (2.0, False), (4.0, True)])
def test_a_gang_elsewhere_is_paced_anew_only_where_the_spine_binds(
    spine_oversubscription: float, is_paced_anew: bool
) -> None:
    cluster = leaves_of_four(nodes=32, oversubscription=4.0, spine_oversubscription=spine_oversubscription)
    state = make_state(make_trace(gangs_of("gpt2", "gpt2", gpus=4)), cluster)

    place(state, 0, {0: 2, 4: 2}, 0.0)
    place(state, 1, {8: 2, 12: 2}, 400.0)

    # Eight uplinks, of which first two and then four are loaded: a spine of half of all carries these.
    assert (state.jobs["booked_time"][0] == 400.0) == is_paced_anew
    assert (state.jobs["rate"][0] < 1.0) == is_paced_anew


def test_a_gang_larger_than_a_leaf_is_held_against_what_the_spine_gives_it_alone() -> None:
    jobs = gangs_of("gpt2", gpus=16)
    state = ended(jobs, leaves_of_four(spine_oversubscription=4.0), dict.fromkeys(range(8), 2))

    # 200 Gb/s for eight nodes.
    assert best_gbps(state, 8) == 25.0
    assert ends(state) == [1000.0]


@pytest.mark.parametrize(("nodes", "gbps"), [(1, 2400.0), (2, 100.0), (4, 100.0), (5, 50.0)])
def test_the_best_placement_has_the_links_of_its_tier_alone(nodes: int, gbps: float) -> None:
    # Leaves of four and of one node.
    cluster = leaves_of_four(nodes=5, node_gbps=NVSWITCH_GBPS, oversubscription=2.0)
    state = make_state(make_trace(gangs_of("gpt2")), cluster)

    assert best_gbps(state, nodes) == gbps


def test_by_default_one_node_is_no_limit() -> None:
    state = ended(gangs_of("gpt2"), leaves_of_four(), {0: 2})

    assert best_gbps(state, 1) == float("inf")
    assert ends(state) == [1000.0]
    assert state.jobs["exposed_gpu_s"].tolist() == [0.0]


@pytest.mark.parametrize("nodes", [(2, 9), (2, 3, 4, 8)])
def test_what_a_gang_will_get_across_leaves_is_what_it_gets_once_it_runs(nodes: tuple[int, ...]) -> None:
    cluster = leaves_of_four(
        nodes=16, gpus=4, node_gbps=PCIE_GBPS, node_shared=True, oversubscription=2.0, spine_oversubscription=3.0
    )
    jobs = [*gangs_of("gpt2", "bert", "vgg16", gpus=8, gpus_min=1), *gangs_of("bert", gpus=2 * len(nodes))]
    state = make_state(make_trace(jobs), cluster)
    place(state, 0, {2: 2, 3: 2}, 0.0)
    place(state, 1, {0: 2, 4: 2}, 0.0)
    place(state, 2, {8: 2, 9: 2}, 0.0)
    pick_of(state, dict.fromkeys(nodes, 2))

    foreseen = picked_inflation(state, 3, True)
    place(state, 3, dict.fromkeys(nodes, 2), 0.0)

    assert foreseen > 1.0
    assert state.jobs["rate"][3] == pytest.approx(1.0 / foreseen)


def test_all_links_are_free_when_all_have_ended() -> None:
    cluster = leaves_of_four(nodes=16, gpus=4, node_gbps=PCIE_GBPS, node_shared=True, spine_oversubscription=8.0)
    jobs = gangs_of("bert", "bert", "bert", gpus=4, gpus_min=1)

    state = ended(jobs, cluster, {0: 2, 4: 2}, {0: 2}, {4: 2, 8: 2}, at=(0.0, 10.0, 20.0))

    assert state.nodes["pressure"] == pytest.approx(np.zeros(16))
    assert state.nodes["inner_pressure"] == pytest.approx(np.zeros(16))
    assert state.leaves["crossing"].tolist() == [0, 0, 0, 0]
    assert state.tally["loaded"].tolist() == [0]


def test_links_of_a_guest_are_free_when_it_and_its_host_have_ended() -> None:
    cluster = leaves_of_four(gpus=4, node_gbps=PCIE_GBPS, node_shared=True)
    state = make_state(make_trace(gangs_of("bert", "bert", gpus=2)), cluster)

    place(state, 0, {0: 1, 4: 1}, 0.0)
    submit(state, 1, 0.0)
    start_as_guest(state, 1, 0, 10.0)
    beside = state.nodes["pressure"].copy()
    run_out(state)

    # Both send, as much as each other.
    assert beside[[0, 4]] == pytest.approx(2.0 * float(profile("bert")["node_pressure"]))
    assert state.nodes["pressure"] == pytest.approx(np.zeros(8))
    assert state.nodes["inner_pressure"] == pytest.approx(np.zeros(8))
    assert state.leaves["crossing"].tolist() == [0, 0]
