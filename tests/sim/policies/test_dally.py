"""Delay scheduling on cases small enough to compute by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from advisor.domain.topology import LocalityTier
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import Cluster, Failures, NodeGroup, parse_cluster
from advisor.sim.policies import POLICIES
from advisor.sim.policies.dally import Dally
from advisor.sim.policies.rounds import RoundPolicy, RoundView
from advisor.sim.run_outcome import Run
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.traces.trace import Trace
from tests.sim.building import IDEAL, make_trace, run_of, starts_and_ends
from tests.sim.internals import usable_gpus
from tests.sim.offering import INSENSITIVE, SENSITIVE, slower
from tests.sim.test_properties import clusters, small, traces
from tests.sim.watching import run_decision

# A node sends 10 Gb/s and a leaf half of what its two nodes do.
PAIR = "nodes=2,gpus=4,nic_gbps=10"
APART = "nodes=2,gpus=4,leaf=1,nic_gbps=10,oversubscription=2"
MEASURED = SimulationOptions()
LONG_S = 100_000.0
# Two GPUs on two nodes run so much longer, of their run time.
COST = slower(2, 2, 10.0, 2, np.inf) - 1.0
NODE, LEAF, SPINE = LocalityTier.NODE, LocalityTier.LEAF, LocalityTier.SPINE


def blockers(count: int, gpus: int = 3, run_time_s: float = LONG_S) -> list[dict[str, Any]]:
    """Build jobs that take one node of 4 GPUs each, the first nodes first, and leave one GPU."""
    return [{"gpus": gpus, "run_time_s": run_time_s}] * count


def gang(submit_time: float, gpus: int = 2, *, run_time_s: float = 5000.0, model: str = SENSITIVE) -> dict[str, Any]:
    return {"submit_time": submit_time, "gpus": gpus, "nodes_max": 0, "run_time_s": run_time_s, "model": model}


def starts(run: Run) -> list[float]:
    return [float(at) for at in run.outcomes["start_time"]]


def places(run: Run, row: int) -> list[tuple[int, int]]:
    """List the nodes and the tier of every stretch of a job."""
    mine = run.segments[run.segments["job"] == row]
    return [(int(each["nodes"]), int(each["tier"])) for each in mine]


def run_dally(trace: Trace, cluster: str | Cluster, dally: Dally, options: SimulationOptions = MEASURED) -> Run:
    """Simulate a policy that the test looks into afterwards."""
    return run_decision(trace, cluster, lambda: dally, options, every_s=0.0)


@pytest.mark.parametrize("policy", ["dally", "dally+preempt", "dally-nowait", "dally-consolidated", "dally-fixed"])
def test_the_best_place_is_taken_at_once(policy: str) -> None:
    jobs = [gang(0), gang(5, 8), gang(20, 2)]

    run = run_of(jobs, "nodes=4,gpus=4,nic_gbps=10", policy, MEASURED)

    assert starts(run) == [0, 5, 20]
    assert [places(run, row) for row in range(3)] == [[(1, NODE)], [(2, LEAF)], [(1, NODE)]]


@pytest.mark.parametrize(
    ("policy", "cluster", "start_time"),
    [
        pytest.param("dally-nowait", PAIR, 10.0, id="no wait for a node"),
        pytest.param("dally-nowait", APART, 10.0, id="no wait for a leaf"),
        pytest.param("dally-fixed", PAIR, 610.0, id="10 min for a node"),
        pytest.param("dally-fixed", APART, 1810.0, id="30 min for a leaf"),
        pytest.param("dally", PAIR, 10.0 + 5000.0 * COST, id="what a node saves"),
        pytest.param("dally-consolidated", PAIR, 20_000.0, id="until a node is free"),
        pytest.param("dally-consolidated", APART, 20_000.0, id="until a node is free, two leaves"),
    ],
)
def test_a_gang_declines_a_spread_place_until_its_timer_ends(policy: str, cluster: str, start_time: float) -> None:
    jobs = [*blockers(1, run_time_s=20_000.0), *blockers(1), gang(10)]

    run = run_of(jobs, cluster, policy, MEASURED)

    assert 15_000.0 < 5000.0 * COST < 20_000.0
    assert starts(run)[2] == pytest.approx(start_time, rel=1e-12)


# A node of each of two leaves is idle: the fewest nodes for eight GPUs. Other jobs fill the first leaf's second node.
SPLIT = [{"gpus": 4, "run_time_s": run_time_s} for run_time_s in (5.0, LONG_S, 5.0, LONG_S)]
SPLIT_LEAVES = "nodes=4,gpus=4,leaf=2,nic_gbps=10,oversubscription=4"
FIVE = "nodes=5,gpus=4,nic_gbps=10"


@pytest.mark.parametrize(
    ("others", "gpus", "cluster", "start_time", "place"),
    [
        pytest.param(blockers(3), 2, "nodes=3,gpus=4,leaf=2,nic_gbps=10", 610, (2, LEAF), id="one leaf, not a node"),
        pytest.param(blockers(4), 8, FIVE, 610, (5, LEAF), id="parts of a leaf, not two nodes of it"),
        pytest.param([*blockers(1, run_time_s=300.0), *blockers(3)], 8, FIVE, 300, (2, LEAF), id="two nodes in time"),
        pytest.param(SPLIT, 8, SPLIT_LEAVES, 10 + 1800, (2, SPINE), id="two leaves, though on the fewest nodes"),
    ],
)
def test_a_gang_that_gives_up_on_its_best_place_takes_the_next_best(
    others: list[dict[str, Any]], gpus: int, cluster: str, start_time: float, place: tuple[int, int]
) -> None:
    run = run_of([*others, gang(10, gpus)], cluster, "dally-fixed", MEASURED)

    assert starts(run)[-1] == start_time
    assert places(run, len(others)) == [place]


def test_whoever_declines_leaves_the_place_to_those_behind() -> None:
    jobs = [*blockers(2), gang(10), {"submit_time": 20}, gang(30, model=INSENSITIVE)]

    run = run_of(jobs, PAIR, "dally-consolidated", MEASURED)

    # The last one waits for the GPU that the one before it has for 100 s, and then takes what the first declines.
    assert starts(run)[3:] == [20, 120]
    assert places(run, 4) == [(2, LEAF)]
    assert starts(run)[2] == LONG_S


def test_the_clock_stands_while_there_is_no_place_to_decline() -> None:
    jobs = [*blockers(2), gang(10), {"submit_time": 20}]

    # 10 s are declined until the last job takes a GPU for 100 s; then 590 s more.
    assert starts(run_of(jobs, PAIR, "dally-fixed", MEASURED))[2:] == [120 + 590, 20]


@pytest.mark.parametrize("policy", ["dally", "dally-fixed", "dally-consolidated"])
def test_a_gang_that_waits_takes_a_better_place_when_it_comes(policy: str) -> None:
    jobs = [*blockers(1, run_time_s=300.0), *blockers(1), gang(10)]

    run = run_of(jobs, PAIR, policy, MEASURED)

    assert starts(run)[2] == 300
    assert places(run, 2) == [(1, NODE)]


@pytest.mark.parametrize("policy", ["dally", "dally-fixed", "dally-consolidated"])
def test_a_gang_that_the_network_does_not_slow_never_waits(policy: str) -> None:
    jobs = [*blockers(2), gang(10, model=INSENSITIVE)]

    run = run_of(jobs, APART, policy, MEASURED)

    assert starts(run)[2] == 10
    assert places(run, 2) == [(2, SPINE)]


def test_under_ideal_execution_nobody_waits() -> None:
    jobs = [*blockers(2), gang(10)]

    assert starts(run_of(jobs, APART, "dally-consolidated", IDEAL))[2] == 10


def test_a_gang_larger_than_a_leaf_is_at_its_best_on_as_few_leaves_as_hold_it() -> None:
    jobs = [gang(0, 12)]

    run = run_of(jobs, "nodes=6,gpus=4,leaf=2,nic_gbps=10,oversubscription=4", "dally-consolidated", MEASURED)

    assert starts_and_ends(run) == [(0, 5000)]
    assert places(run, 0) == [(3, SPINE)]


def test_nobody_waits_for_what_a_cluster_of_uneven_nodes_never_has() -> None:
    # The largest node has 4 GPUs, so the fewest nodes for 8 would be two; there are 4 + 2 + 2.
    groups = parse_cluster("nodes=1,gpus=4,nic_gbps=10,oversubscription=4")
    cluster = replace(groups, nodes=(*groups.nodes, NodeGroup(count=2, gpus=2)))

    assert starts(run_of([gang(0, 8)], cluster, "dally-consolidated", MEASURED)) == [0]


@pytest.mark.parametrize("bound_s", [300.0, 12_345.0])
def test_no_tuned_timer_is_longer_than_the_bound_on_added_delay(bound_s: float) -> None:
    jobs = [*blockers(2), gang(10)]

    run = run_of(jobs, PAIR, "dally", SimulationOptions(limits=Limits(max_added_delay_s=bound_s)))

    assert starts(run)[2] == 10 + bound_s


def test_a_gang_that_can_save_less_than_it_would_wait_takes_what_there_is() -> None:
    jobs = [*blockers(2), gang(10, run_time_s=590.0 / COST), gang(2000, run_time_s=610.0 / COST)]

    # A place is believed to come after 600 s on average.
    assert starts(run_of(jobs, PAIR, "dally", MEASURED))[2:] == pytest.approx([10, 2000 + 610])


def test_the_believed_run_time_decides_what_a_wait_can_save() -> None:
    believed_s = 700.0 / COST
    jobs = [*blockers(2), gang(10) | {"time_limit_s": believed_s}]

    assert starts(run_of(jobs, PAIR, "dally", SimulationOptions(speeds="estimated")))[2] == pytest.approx(10 + 700)


def test_a_wait_in_vain_makes_the_next_gang_less_patient() -> None:
    run_time_s = 604.0 / COST
    trace = make_trace([*blockers(2), gang(10, run_time_s=run_time_s), gang(2000, run_time_s=run_time_s)])
    dally = Dally()

    run = run_dally(trace, PAIR, dally)

    # Two imagined waits of 600 s and 604 s in vain: a place would take 600 + 332 s and more on average.
    assert starts(run)[2:] == pytest.approx([10 + 604, 2000])
    seen = dally.tuner(2000.0, PlanningSettings()).seen(2, NODE)
    assert (seen.gangs, seen.got) == (1, 0)


@pytest.mark.parametrize(
    ("first", "start_time"),
    [pytest.param([], 1100.0, id="nothing seen"), pytest.param([gang(10, run_time_s=1000.0)], 1160.0, id="one seen")],
)
def test_a_place_that_came_soon_makes_the_next_gang_wait_a_minute(
    first: list[dict[str, Any]], start_time: float
) -> None:
    again = {"submit_time": 1060, "gpus": 3, "run_time_s": LONG_S}
    jobs = [*blockers(1, run_time_s=40.0), *blockers(1), *first, again, gang(1100, run_time_s=400.0 / COST)]

    # A place came after 30 s: in the first minute one is believed to come in some 300 s, then in some 430 s.
    assert starts(run_of(jobs, PAIR, "dally", MEASURED))[-1] == pytest.approx(start_time)


def test_fixed_timers_are_not_tuned() -> None:
    jobs = [*blockers(2), gang(10, run_time_s=200.0), gang(2000, run_time_s=200.0)]

    assert starts(run_of(jobs, PAIR, "dally-fixed", MEASURED))[2:] == [610, 2600]


def test_a_wait_is_remembered_for_the_tiers_that_were_reached() -> None:
    dally = Dally(fixed_s=(600.0, 1800.0))
    trace = make_trace([*blockers(2), gang(10)])

    run_dally(trace, PAIR, dally)

    tuner = dally.tuner(610.0, PlanningSettings())
    at_node, at_leaf = (tuner.seen(2, tier) for tier in (NODE, LEAF))
    assert (at_node.gangs, at_node.got) == (1, 0)
    assert (at_leaf.gangs, at_leaf.got, at_leaf.within_s) == (1, 1, 600.0)


def test_a_gang_that_took_its_place_at_once_tells_nothing() -> None:
    dally = Dally()

    run_dally(make_trace([gang(0)]), PAIR, dally)

    assert dally.tuner(0.0, PlanningSettings()).seen(2, NODE).gangs == 0


def test_who_is_put_back_by_a_fault_may_wait_again_for_what_is_left_of_the_bound() -> None:
    cluster = Cluster(
        nodes=(NodeGroup(count=3, gpus=4),),
        network=parse_cluster(PAIR).network,
        failures=Failures(node_mtbf_h=0.5, repair_h=0.2),
    )
    trace = make_trace([*blockers(3, run_time_s=3000.0), *(gang(10.0 + 500.0 * at) for at in range(8))])
    dally = Dally()

    run = run_dally(trace, cluster, dally, SimulationOptions(limits=Limits(max_added_delay_s=400.0)))

    assert dally._patience is not None
    spent_s = dally._patience.spent_s
    assert run.outcomes["preemptions"].sum() > 0
    assert spent_s.max() == pytest.approx(400.0)


def declined_by_job(
    trace: Trace, cluster: Cluster, policy: str, options: SimulationOptions
) -> np.ndarray[Any, np.dtype[Any]]:
    """Return for how long every job was left pending though enough GPUs were free for it, `(n_jobs,)`."""
    original = POLICIES[policy]
    assert isinstance(original, RoundPolicy)
    declined_s = np.zeros(len(trace))
    before: tuple[float, list[int]] = (0.0, [])

    def make() -> Any:
        decide = original.make()

        def watched(view: RoundView) -> None:
            nonlocal before
            declined_s[before[1]] += view.now - before[0]
            decide(view)
            nodes = range(len(view.state.nodes))
            able = [
                row
                for row in view.pending.tolist()
                if sum(usable_gpus(view.state, row, node) for node in nodes) >= view.jobs["gpus"][row]
            ]
            before = (view.now, able)

        return watched

    run_decision(trace, cluster, make, options, every_s=0.0)
    return declined_s


@pytest.mark.parametrize("policy", ["dally", "dally+preempt"])
@small
@given(trace=traces(elastic=False), cluster=clusters())
def test_no_job_declines_for_longer_than_the_bound_in_all(policy: str, trace: Trace, cluster: Cluster) -> None:
    slow = replace(cluster, network=replace(cluster.network, nic_gbps=2.0))

    declined_s = declined_by_job(trace, slow, policy, SimulationOptions(limits=Limits(max_added_delay_s=500.0)))

    assert declined_s.max() <= 500.0 + 1e-3


def test_the_bound_is_reached_where_it_binds() -> None:
    trace = make_trace([*blockers(2), gang(10)])

    options = SimulationOptions(limits=Limits(max_added_delay_s=500.0))

    declined_s = declined_by_job(trace, parse_cluster(PAIR), "dally", options)

    assert declined_s.tolist() == [0, 0, 500]
