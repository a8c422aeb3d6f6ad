"""What a gang is offered, what it costs there, and how long it declines, on cases small enough to compute by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.topology import LocalityTier
from advisor.planning import tuning
from advisor.planning.tuning import EDGES_S
from advisor.sim.cluster import Cluster, Network, NodeGroup
from advisor.sim.engine.tables import Integers, Reals
from advisor.sim.policies.engine_calls import best_tiers, sensitivities, tier_held, tier_of_pick
from tests.sim.building import make_state, make_trace, pick_of, place
from tests.sim.internals import picked_inflation, timer_s, tuned_timer_s
from tests.sim.offering import (
    INSENSITIVE,
    LEAF_S,
    NODE_S,
    SENSITIVE,
    SIX,
    gang,
    held_by,
    offer_all,
    patience_of,
    slower,
    state_of,
    tuned,
)


@pytest.mark.parametrize(
    ("gpus", "gpus_by_node", "expected"),
    [
        pytest.param(4, {5: 4}, LocalityTier.NODE, id="one node"),
        pytest.param(4, {3: 2, 4: 2}, LocalityTier.LEAF, id="two nodes of one leaf"),
        pytest.param(4, {2: 2, 3: 2}, LocalityTier.SPINE, id="two nodes of two leaves"),
        pytest.param(8, {0: 4, 2: 4}, LocalityTier.NODE, id="the fewest nodes under one leaf"),
        pytest.param(8, {0: 4, 1: 2, 2: 2}, LocalityTier.LEAF, id="more nodes than needed under one leaf"),
        pytest.param(8, {2: 4, 3: 4}, LocalityTier.SPINE, id="the fewest nodes under two leaves"),
        pytest.param(16, {0: 4, 1: 4, 2: 4, 4: 4}, LocalityTier.NODE, id="larger than a leaf, as close as can be"),
        pytest.param(16, {0: 4, 1: 4, 2: 4, 3: 2, 4: 2}, LocalityTier.LEAF, id="larger than a leaf, on more nodes"),
    ],
)
def test_a_tier_counts_from_the_best_that_a_gang_could_have(
    gpus: int, gpus_by_node: dict[int, int], expected: int
) -> None:
    state = state_of(gang(gpus))
    pick_of(state, gpus_by_node)

    tier = tier_of_pick(state, 0)
    place(state, 0, gpus_by_node, 0.0)

    assert tier == expected
    assert tier_held(state, 0) == expected


def test_a_gang_larger_than_a_leaf_may_cross_more_leaves_than_it_needs() -> None:
    state = state_of(gang(16), cluster="nodes=6,gpus=4,leaf=2")
    pick_of(state, {0: 4, 1: 4, 2: 4, 4: 4})

    assert tier_of_pick(state, 0) == LocalityTier.SPINE


@pytest.mark.parametrize(
    ("in_use", "gpus", "expected"),
    [
        pytest.param((0, 0, 0, 2, 0, 0), 2, {3: 2}, id="one node, the fullest that fits"),
        pytest.param((3, 3, 3, 3, 3, 4), 2, {3: 1, 4: 1}, id="one leaf rather than two, the fuller one"),
        pytest.param((3, 4, 4, 3, 4, 4), 2, {0: 1, 3: 1}, id="two leaves if there is nothing better"),
        pytest.param((0, 4, 4, 0, 2, 2), 8, {3: 4, 4: 2, 5: 2}, id="more nodes of one leaf rather than two leaves"),
        pytest.param((0, 4, 4, 0, 4, 4), 8, {0: 4, 3: 4}, id="the fewest nodes under two leaves"),
        pytest.param((0, 0, 4, 0, 2, 2), 16, {0: 4, 1: 4, 3: 4, 4: 2, 5: 2}, id="parts of all leaves"),
    ],
)
def test_the_closest_free_place_is_offered(in_use: tuple[int, ...], gpus: int, expected: dict[int, int]) -> None:
    state = state_of(gang(gpus), in_use=in_use)

    offer_all(state, patience_of(state, node_s=0.0, leaf_s=0.0), 0.0)

    assert held_by(state, 0) == expected


def test_the_best_tier_is_accepted_at_once() -> None:
    state = state_of(gang(4), gang(8))
    patience = patience_of(state)

    running = offer_all(state, patience, 0.0)

    assert running == [0, 1]
    assert patience.reached.tolist() == [LocalityTier.NODE, LocalityTier.NODE]
    assert patience.declining.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("in_use", "until", "reached"),
    [
        pytest.param((3, 3, 4, 4, 4, 4), NODE_S, LocalityTier.LEAF, id="two nodes of a leaf"),
        pytest.param((3, 4, 4, 3, 4, 4), LEAF_S, LocalityTier.SPINE, id="two leaves"),
    ],
)
def test_a_gang_declines_until_the_timer_of_a_better_tier_ends(
    in_use: tuple[int, ...], until: float, reached: int
) -> None:
    state = state_of(gang(2), in_use=in_use)
    patience = patience_of(state)

    at_first = offer_all(state, patience, 0.0)
    watched = float(state.jobs["watch_time"][0])
    just_before = offer_all(state, patience, until - 1.0)
    in_time = offer_all(state, patience, until)

    assert (at_first, watched, just_before, in_time) == ([], until, [], [0])
    assert patience.reached[0] == reached
    assert patience.declined_s[0] == until
    assert state.jobs["watch_time"][0] == np.inf


def test_whoever_declines_blocks_nobody() -> None:
    state = state_of(gang(2), gang(1), gang(2, model=INSENSITIVE), in_use=(3, 3, 3, 4, 4, 4))

    assert offer_all(state, patience_of(state), 0.0) == [1, 2]


def test_nothing_is_offered_where_nothing_is_free() -> None:
    state = state_of(gang(2), in_use=(4, 4, 4, 4, 4, 4))
    patience = patience_of(state)

    offer_all(state, patience, 0.0)

    assert patience.declining[0] == 0
    assert state.jobs["watch_time"][0] == np.inf


def test_what_one_did_not_find_is_not_sought_for_the_next_of_its_shape() -> None:
    state = state_of(gang(2, cpus_per_gpu=1), gang(2, cpus_per_gpu=1), gang(2), in_use=(2, 4, 4, 3, 4, 4))
    state.nodes["cpus_free"] = 0
    patience = patience_of(state)

    running = offer_all(state, patience, 0.0)

    assert running == [2]
    # Not close, not under a leaf, not anywhere; of the other shape nothing is missing.
    assert patience.missing[state.jobs["shape"]].tolist() == [7, 7, 0]


def test_the_clock_runs_only_while_there_is_a_place_to_decline() -> None:
    state = state_of(gang(2), in_use=(3, 3, 4, 4, 4, 4))
    patience = patience_of(state)

    offer_all(state, patience, 0.0)
    state.nodes["is_up"][0] = 0
    offer_all(state, patience, 100.0)
    state.nodes["is_up"][0] = 1
    offer_all(state, patience, 5000.0)
    offer_all(state, patience, 5200.0)

    # 100 s up to the fault, none during it, 200 s since.
    assert patience.declined_s[0] == 300.0
    assert state.jobs["watch_time"][0] == 5200.0 + NODE_S - 300.0


def test_the_clock_stops_when_one_further_back_takes_the_place() -> None:
    state = state_of(gang(2), gang(1), in_use=(3, 3, 4, 4, 4, 4))
    patience = patience_of(state)

    running = offer_all(state, patience, 0.0)
    offer_all(state, patience, 500.0)

    assert running == [1]
    assert patience.declined_s[0] == 0.0
    assert state.jobs["watch_time"][0] == np.inf


def test_the_clock_goes_on_where_those_further_back_leave_a_place() -> None:
    state = state_of(gang(2), gang(1), in_use=(3, 3, 3, 4, 4, 4))
    patience = patience_of(state)

    running = offer_all(state, patience, 0.0)
    offer_all(state, patience, 500.0)

    assert running == [1]
    assert patience.declined_s[0] == 500.0


@pytest.mark.parametrize("cluster", [SIX, SIX + ",node_gbps=5"])
def test_a_place_under_one_leaf_costs_what_a_node_sends(cluster: str) -> None:
    state = state_of(gang(4), cluster=cluster)
    pick_of(state, {0: 2, 1: 2})

    cost = picked_inflation(state, 0, False)

    # Alone on one node the gang has all that its GPUs carry: no limit, or 5 Gb/s, which then bind on two nodes too.
    expected = slower(4, 2, 10.0, 2, np.inf) if cluster == SIX else 1.0
    assert cost == pytest.approx(expected)
    assert (cost > 5.0) == (cluster == SIX)


def test_a_place_across_leaves_costs_what_their_uplinks_leave() -> None:
    state = state_of(gang(4), gang(8, nodes_min=2))
    place(state, 1, {2: 4, 3: 4}, 0.0)
    pick_of(state, {0: 2, 4: 2})

    cost = picked_inflation(state, 0, True)

    # An uplink carries 3 x 10 / 4 Gb/s, half of it for the gang that crosses already.
    assert cost == pytest.approx(slower(4, 2, 3.75, 2, np.inf))


def test_a_slower_gpu_waits_less_for_the_network() -> None:
    state = state_of(gang(4))
    pick_of(state, {0: 2, 1: 2})
    state.type_speed[:] = 0.5

    assert picked_inflation(state, 0, False) == pytest.approx(slower(4, 2, 20.0, 2, np.inf))


def test_under_ideal_execution_no_place_costs_anything() -> None:
    state = make_state(make_trace([gang(4)]), SIX, ideal=True)
    pick_of(state, {0: 2, 3: 2})

    assert picked_inflation(state, 0, True) == 1.0


@pytest.mark.parametrize(
    ("model", "expected_s"),
    [pytest.param(INSENSITIVE, 0.0, id="not slowed"), pytest.param(SENSITIVE, NODE_S, id="slowed")],
)
def test_a_gang_that_the_network_does_not_slow_never_waits(model: str, expected_s: float) -> None:
    state = state_of(gang(2, model=model))
    pick_of(state, {0: 1, 1: 1})

    assert timer_s(state, patience_of(state), 0, LocalityTier.LEAF) == expected_s


def test_a_tuned_timer_is_no_longer_than_what_the_node_saves() -> None:
    state = state_of(gang(2, run_time_s=1000.0))
    pick_of(state, {0: 1, 1: 1})

    timer = timer_s(state, tuned(state), 0, LocalityTier.LEAF)

    # A place every 10 min, and 1000 s would become more than 4000.
    assert timer == pytest.approx(1000.0 * (slower(2, 2, 10.0, 2, np.inf) - 1.0))
    assert timer > 3000.0


def test_a_tuned_timer_counts_what_is_left_of_the_run_time_as_it_is_believed() -> None:
    state = state_of(gang(2, run_time_s=4000.0))
    pick_of(state, {0: 1, 1: 1})
    state.jobs["believed_s"][0] = 2000.0
    state.jobs["left_s"][0] = 2000.0

    timer = timer_s(state, tuned(state), 0, LocalityTier.LEAF)

    # Half of 2000 s is left.
    assert timer == pytest.approx(1000.0 * (slower(2, 2, 10.0, 2, np.inf) - 1.0))


def test_nobody_waits_for_a_node_that_saves_less_than_it_takes() -> None:
    state = state_of(gang(2, run_time_s=100.0))
    pick_of(state, {0: 1, 1: 1})

    # About 300 s would be saved by a wait of 600.
    assert timer_s(state, tuned(state), 0, LocalityTier.LEAF) == 0.0


def test_across_leaves_the_longer_of_both_timers_counts() -> None:
    state = state_of(gang(2, run_time_s=1000.0))
    pick_of(state, {0: 1, 3: 1})
    across = slower(2, 2, 7.5, 2, np.inf)
    one_leaf = slower(2, 2, 10.0, 2, np.inf)

    for_a_leaf = timer_s(state, tuned(state, mean_s=(1e9, 600.0)), 0, LocalityTier.SPINE)
    for_a_node = timer_s(state, tuned(state, mean_s=(600.0, 600.0)), 0, LocalityTier.SPINE)

    # A node spares all that the network costs, a leaf what the uplink costs beyond the NIC.
    assert for_a_leaf == pytest.approx(1000.0 * (across - one_leaf))
    assert for_a_node == pytest.approx(1000.0 * (across - 1.0))
    assert 600.0 < for_a_leaf < for_a_node


def test_the_bound_on_added_delay_counts_what_was_declined_before_an_earlier_start() -> None:
    state = state_of(gang(2))
    pick_of(state, {0: 1, 1: 1})
    patience = tuned(state, longest_s=900.0)

    first = timer_s(state, patience, 0, LocalityTier.LEAF)
    patience.spent_s[0] = 700.0
    again = timer_s(state, patience, 0, LocalityTier.LEAF)
    patience.spent_s[0] = 900.0
    never = timer_s(state, patience, 0, LocalityTier.LEAF)

    assert (first, again, never) == (900.0, 200.0, 0.0)


def test_a_gang_larger_than_a_leaf_takes_more_leaves_where_their_uplinks_are_free() -> None:
    state = state_of(gang(12), cluster="nodes=6,gpus=4,leaf=2,nic_gbps=10,oversubscription=4")
    patience = patience_of(state)
    pick_of(state, {1: 4, 3: 4, 5: 4})

    alone = timer_s(state, patience, 0, LocalityTier.SPINE)
    state.leaves["crossing"] = 3
    beside_three = timer_s(state, patience, 0, LocalityTier.SPINE)

    # A leaf carries 2 x 10 / 4 Gb/s. On two leaves one of them has two nodes, 2.5 each; on three a node has all 5, and
    # beside three others 1.25.
    assert (alone, beside_three) == (0.0, LEAF_S)


def test_nobody_waits_for_a_tier_that_even_the_idle_cluster_does_not_have() -> None:
    # One node has 4 GPUs and two have 2: two nodes of 4 would be the fewest for 8, and no leaf has as many.
    groups = (NodeGroup(count=1, gpus=4), NodeGroup(count=2, gpus=2))
    uneven = Cluster(nodes=groups, network=Network(nic_gbps=10.0, oversubscription=4.0))
    state = state_of(gang(8), gang(4), gang(3), cluster=uneven)
    patience = patience_of(state)

    best_tiers(state, patience, Integers(np.arange(3, dtype=np.int32)))
    state.leaves["crossing"] = 5
    pick_of(state, {0: 4, 1: 2, 2: 2})
    all_gpus_s = timer_s(state, patience, 0, LocalityTier.SPINE)
    pick_of(state, {1: 2, 2: 1})
    some_s = timer_s(state, patience, 2, LocalityTier.LEAF)

    assert patience.best_tier[state.jobs["shape"]].tolist() == [
        LocalityTier.SPINE,
        LocalityTier.NODE,
        LocalityTier.NODE,
    ]
    assert (all_gpus_s, some_s) == (0.0, NODE_S)


SECONDS = st.floats(0.0, 1e7)
RATES = st.lists(st.floats(1e-9, 1.0), min_size=len(EDGES_S) - 1, max_size=len(EDGES_S) - 1)


@given(rates=RATES, run_s=SECONDS, here=st.floats(1.0, 20.0), there=st.floats(1.0, 20.0), bound_s=SECONDS)
def test_timer_is_that_of_the_planner_to_the_last_bit(
    rates: list[float], run_s: float, here: float, there: float, bound_s: float
) -> None:
    state = state_of(gang(2))
    patience = tuned(state)
    patience.rate_per_s[LocalityTier.LEAF] = rates

    simulated = tuned_timer_s(patience, 0, LocalityTier.LEAF, run_s, here, there, bound_s)

    assert simulated == tuning.timer_s(np.array(rates), run_s, here, there, patience.least_inflation[0], bound_s)


def test_sensitivities_are_those_of_one_node_more_on_two_leaves() -> None:
    state = state_of(gang(4), gang(8), gang(4, model=INSENSITIVE), gang(1))
    found = np.empty(4)

    sensitivities(state, Integers(np.arange(4, dtype=np.int32)), Reals(found))

    # An uplink of 7.5 Gb/s serves one node of two, and one of three under the leaf with the smaller half.
    assert found == pytest.approx([slower(4, 2, 7.5, 2, np.inf), slower(8, 3, 7.5, 2, 10.0), 1.0, 1.0])


def test_under_ideal_execution_nobody_is_sensitive() -> None:
    state = make_state(make_trace([gang(8)]), SIX, ideal=True)
    found = np.empty(1)

    sensitivities(state, Integers(np.zeros(1, np.int32)), Reals(found))

    assert found.tolist() == [1.0]
