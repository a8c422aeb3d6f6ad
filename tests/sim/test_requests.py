"""What jobs ask of nodes beside GPUs, and what nodes are, under the model of slurmctld."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster, NodeChange, NodeGroup, NodeReservation, NodeState, StateChange
from advisor.sim.node_events import draw_faults
from advisor.sim.profiles import load_profiles
from advisor.sim.run_outcome import End, Run
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import build_state
from advisor.sim.study.metrics import by_gpus, count_ends, summarise
from advisor.sim.traces.trace import Trace
from tests.sim.building import FIRST_COME, make_trace, run_of, starts_and_ends

MEASURED = SimulationOptions()
Jobs = Sequence[Mapping[str, Any]]

NAMES = ("features", "required_nodes", "excluded_nodes", "reservation")
LARGE = NodeGroup(count=1, gpus=4, cpus=16, memory_mib=1000)


def asking(jobs: Jobs) -> Trace:
    """Build a trace whose constraints, node lists and reservations are given by name."""
    tables = {name: tuple(dict.fromkeys(["", *(str(job.get(name, "")) for job in jobs)])) for name in NAMES}
    coded = [
        {name: tables[name].index(value) if name in NAMES else value for name, value in job.items()} for job in jobs
    ]
    return replace(
        make_trace(coded),
        features=tables["features"],
        required_nodes=tables["required_nodes"],
        excluded_nodes=tables["excluded_nodes"],
        reservations=tables["reservation"],
    )


def cluster_of(*groups: NodeGroup, **tables: Any) -> Cluster:
    return Cluster(nodes=groups, slurm=FIRST_COME, **tables)


def slurm_run(jobs: Jobs, cluster: Cluster, options: SimulationOptions = MEASURED) -> Run:
    return run_of(asking(jobs), cluster, "slurm", options)


def starts(jobs: Jobs, *groups: NodeGroup, **tables: Any) -> list[float]:
    """Return when each job starts, NaN for one that does not."""
    return [start for start, _ in starts_and_ends(slurm_run(jobs, cluster_of(*groups, **tables)))]


def nodes_of(jobs: Jobs, cluster: Cluster) -> list[tuple[str, ...]]:
    """Return the nodes on which jobs that are all submitted at 0 start at once."""
    trace = asking(jobs)
    state = build_state(trace, cluster, load_profiles(), ideal=True, loses_work=True)
    state = state._replace(faults=draw_faults(state, cluster, np.random.default_rng(0)))
    run_slurm(state, build_slurm(state, trace, cluster), 1.0)
    held = [state.held_nodes[job["pool"] : job["pool"] + job["span"]].tolist() for job in state.jobs]
    return [tuple(cluster.node_names[node] for node in nodes) for nodes in held]


def test_jobs_without_gpus_run_beside_gpu_jobs_until_the_cpus_are_taken() -> None:
    jobs = [
        {"gpus": 4, "cpus_per_gpu": 2},
        {"submit_time": 1, "gpus": 0, "cpus": 6},
        {"submit_time": 2, "gpus": 0, "cpus": 4},
    ]

    assert starts(jobs, LARGE) == [0, 1, 100]


def test_a_job_without_gpus_takes_the_cpus_that_it_asks_for_from_each_node() -> None:
    jobs = [{"gpus": 0, "cpus": 24, "nodes_min": 2, "nodes_max": 2}, {"submit_time": 1, "gpus": 0, "cpus": 5}]

    assert starts(jobs, NodeGroup(count=2, gpus=1, cpus=16)) == [0, 100]


def test_a_gang_on_two_nodes_that_would_fit_on_one_by_its_gpus_asks_for_the_cpus_of_both() -> None:
    jobs = [{"gpus": 8, "cpus_per_gpu": 4, "nodes_min": 2, "nodes_max": 2}]

    assert starts(jobs, NodeGroup(count=2, gpus=8, cpus=16)) == [0]


def test_memory_keeps_a_job_waiting_beside_idle_gpus() -> None:
    jobs = [{"memory_mib": 600}, {"submit_time": 1, "memory_mib": 600}, {"submit_time": 2, "memory_mib": 400}]

    # The third fits beside the first, and backfill starts it.
    assert starts(jobs, LARGE) == [0, 100, 30]


def test_backfill_expects_a_start_where_memory_suffices() -> None:
    jobs = [
        {"memory_mib": 600, "run_time_s": 1000, "time_limit_s": 1000},
        {"submit_time": 1, "memory_mib": 600},
        {"submit_time": 2, "time_limit_s": 500},
        {"submit_time": 3, "run_time_s": 500, "time_limit_s": 1500},
    ]

    # The node is reserved from 1000 on, not from now on: only what ends before starts beside the first.
    assert starts(jobs, LARGE) == [0, 1000, 30, 1000]


def test_backfill_expects_a_start_where_cpus_suffice() -> None:
    jobs = [
        {"gpus": 0, "cpus": 10, "run_time_s": 1000, "time_limit_s": 1000},
        {"submit_time": 1, "gpus": 4, "cpus_per_gpu": 2},
        {"submit_time": 2, "time_limit_s": 500},
        {"submit_time": 3, "run_time_s": 500, "time_limit_s": 1500},
    ]

    assert starts(jobs, LARGE) == [0, 1000, 30, 1100]


def test_an_exclusive_job_shares_no_node() -> None:
    jobs = [
        {"gpus": 1, "exclusive": 1},
        {"submit_time": 1, "gpus": 1},
        {"submit_time": 2, "gpus": 0, "cpus": 1},
        {"submit_time": 3, "gpus": 1, "exclusive": 1},
    ]

    run = slurm_run(jobs, cluster_of(LARGE))

    assert starts_and_ends(run) == [(0, 100), (100, 200), (100, 200), (200, 300)]
    # The GPUs that it does not use are held, too, and nothing runs faster.
    assert run.outcomes["held_gpu_s"].tolist() == [400, 100, 0, 400]


def test_backfill_expects_an_exclusive_job_on_an_idle_node() -> None:
    jobs = [
        {"run_time_s": 300, "time_limit_s": 300},
        {"run_time_s": 600, "time_limit_s": 600},
        {"submit_time": 1, "exclusive": 1},
        {"submit_time": 2, "time_limit_s": 500},
        {"submit_time": 3, "time_limit_s": 700},
    ]

    assert starts(jobs, LARGE) == [0, 0, 600, 30, 700]


def test_a_job_that_asks_for_more_than_any_node_has_is_never_queued() -> None:
    jobs = [{"gpus": 0, "cpus": 17}, {"memory_mib": 1001}, {"gpus": 0, "cpus": 16}]

    run = slurm_run(jobs, cluster_of(LARGE))

    assert run.outcomes["end"].tolist() == [End.IMPOSSIBLE, End.IMPOSSIBLE, End.FINISHED]


FEATURED = (
    NodeGroup(count=1, gpus=2, names="a1", features=("old", "ib")),
    NodeGroup(count=2, gpus=2, names="b[1-2]", features=("new", "ib")),
    NodeGroup(count=2, gpus=2, names="c[1-2]", features=("new",)),
)


@pytest.mark.parametrize(
    ("features", "node"),
    [("", "a1"), ("new", "b1"), ("old|new", "a1"), ("new&ib", "b1"), ("[old|new]", "a1"), ("old&ib|new", "a1")],
)
def test_a_constraint_decides_the_node(features: str, node: str) -> None:
    assert nodes_of([{"features": features}], cluster_of(*FEATURED)) == [(node,)]


def test_a_matching_constraint_takes_the_first_alternative_that_has_the_nodes() -> None:
    pair: dict[str, Any] = {"gpus": 4, "nodes_min": 2, "nodes_max": 2}
    jobs = [{**pair, "features": "[old|new]"}]

    assert nodes_of(jobs, cluster_of(*FEATURED)) == [("b1", "b2")]


@pytest.mark.parametrize("features", ["new*2", "new&", "(old|new)&ib", "[old*1&new*2]"])
def test_a_constraint_that_is_not_modelled_is_refused(features: str) -> None:
    with pytest.raises(SimulationError, match="counts and parentheses are not modelled"):
        slurm_run([{"features": features}], cluster_of(*FEATURED))


@pytest.mark.parametrize(
    "asked",
    [{"features": "old&new"}, {"features": "newest"}, {"required_nodes": "a1,b1"}, {"required_nodes": "z9"}],
    ids=["features of no node", "an unknown feature", "more nodes than it takes", "an unknown node"],
)
def test_a_constraint_or_node_list_that_no_node_meets_is_impossible(asked: dict[str, str]) -> None:
    assert count_ends(slurm_run([asked], cluster_of(*FEATURED))).impossible == 1


def test_node_lists_require_and_exclude_nodes() -> None:
    jobs: Jobs = [
        {"required_nodes": "c2"},
        {"gpus": 4, "nodes_min": 2, "nodes_max": 2, "required_nodes": "b2"},
        {"gpus": 2, "excluded_nodes": "a1,b[1-2]"},
    ]

    # Beside the required node the second takes another one of its leaf.
    assert nodes_of(jobs, cluster_of(*FEATURED)) == [("c2",), ("b1", "b2"), ("c1",)]


def test_a_required_node_is_waited_for() -> None:
    jobs = [{"gpus": 2, "required_nodes": "c1"}, {"submit_time": 1, "required_nodes": "c1"}]

    assert starts(jobs, *FEATURED) == [0, 100]


def test_a_gang_with_an_open_node_count_takes_all_nodes_that_it_requires() -> None:
    jobs = [{"gpus": 3, "nodes_max": 0, "required_nodes": "a1,c2"}]

    assert nodes_of(jobs, cluster_of(*FEATURED)) == [("a1", "c2")]


def test_lighter_nodes_are_taken_first() -> None:
    heavy = NodeGroup(count=2, gpus=2, names="h[1-2]", weight=10)
    light = NodeGroup(count=2, gpus=2, names="l[1-2]", weight=5)
    jobs = [{"gpus": 2}, {"gpus": 4, "nodes_min": 2, "nodes_max": 2}, {"gpus": 1}]

    # The second needs a heavy node, and takes the light one that is left as well.
    assert nodes_of(jobs, cluster_of(heavy, light)) == [("l1",), ("h1", "l2"), ("h2",)]


def test_groups_that_name_a_switch_are_one_leaf() -> None:
    groups = (
        NodeGroup(count=2, gpus=2, names="a[1-2]", switch="s1"),
        NodeGroup(count=3, gpus=2, names="b[1-3]", switch="s2"),
        NodeGroup(count=2, gpus=2, names="c[1-2]", switch="s1"),
    )

    assert cluster_of(*groups).node_names == ("a1", "a2", "c1", "c2", "b1", "b2", "b3")
    assert nodes_of([{"gpus": 8, "nodes_min": 4, "nodes_max": 4}], cluster_of(*groups)) == [("a1", "a2", "c1", "c2")]


def test_a_drained_node_keeps_its_jobs_and_takes_no_more() -> None:
    node = NodeGroup(count=1, gpus=2, names="n1")
    events = (
        StateChange(nodes="n1", time_s=50, state=NodeChange.DRAINED),
        StateChange(nodes="n1", time_s=300, state=NodeChange.RESUMED),
    )

    run = slurm_run([{}, {"submit_time": 60}], cluster_of(node, events=events))

    assert starts_and_ends(run) == [(0, 100), (300, 400)]


def test_a_job_that_only_drained_nodes_could_take_holds_up_none() -> None:
    groups = (NodeGroup(count=1, gpus=2, names="n1"), NodeGroup(count=1, gpus=4, names="n2", state=NodeState.DRAINED))
    jobs = [{"gpus": 4}, {"submit_time": 1}]

    run = slurm_run(jobs, cluster_of(*groups))

    assert run.outcomes["start_time"][1] == 1
    assert count_ends(run).not_ended == 1


def test_backfill_expects_nothing_of_a_drained_node() -> None:
    groups = (NodeGroup(count=1, gpus=2, names="n1"), NodeGroup(count=1, gpus=2, names="n2"))
    events = (StateChange(nodes="n1", time_s=5, state=NodeChange.DRAINED),)
    jobs = [
        {"gpus": 2, "run_time_s": 60, "time_limit_s": 60},
        {"run_time_s": 600, "time_limit_s": 600},
        {"submit_time": 10, "gpus": 2},
        {"submit_time": 20, "time_limit_s": 400},
    ]

    # The third is expected on n2 at 600, not on n1 at 60.
    assert starts(jobs, *groups, events=events) == [0, 0, 600, 30]


BOOKED = NodeReservation(name="course", nodes="n1", start_s=500, end_s=800, users=("ann",))
ROW = NodeGroup(count=2, gpus=2, names="n[1-2]")


def test_no_job_reaches_into_a_reservation_for_others() -> None:
    jobs = [
        {"gpus": 2, "run_time_s": 10, "time_limit_s": 500},
        {"gpus": 2, "run_time_s": 1000, "time_limit_s": 1000},
        {"submit_time": 20, "gpus": 2, "run_time_s": 10, "time_limit_s": 481},
        {"submit_time": 25, "gpus": 2, "run_time_s": 10, "time_limit_s": 470},
    ]

    # The third would reach into it by a second, and waits until it is over; the fourth ends before.
    assert starts(jobs, ROW, reservations=(BOOKED,)) == [0, 0, 800, 30]


def test_a_job_that_names_a_reservation_runs_inside_it_alone() -> None:
    jobs: Jobs = [
        {"reservation": "course", "run_time_s": 100, "time_limit_s": 200},
        {"reservation": "course", "run_time_s": 600, "time_limit_s": 900},
        {"reservation": "course", "user": "bob"},
        {"reservation": "none"},
    ]

    run = slurm_run(jobs, cluster_of(ROW, reservations=(BOOKED,)))

    assert starts_and_ends(run)[:2] == [(500, 600), (500, 800)]
    assert run.outcomes["end"].tolist() == [End.FINISHED, End.TIME_LIMIT, End.IMPOSSIBLE, End.IMPOSSIBLE]


def test_a_maintenance_keeps_all_nodes_free() -> None:
    whole = NodeReservation(name="upkeep", nodes="n[1-2]", start_s=200, end_s=300, maintenance=True)
    jobs = [{"time_limit_s": 150}, {"submit_time": 60, "time_limit_s": 150}, {"submit_time": 61, "time_limit_s": 110}]

    # The second holds up the third no longer than until backfill runs.
    assert starts(jobs, ROW, reservations=(whole,)) == [0, 300, 61]


def test_what_the_cluster_does_not_name_does_not_count() -> None:
    jobs = [{"features": "new", "required_nodes": "z9", "reservation": "course"}]

    assert starts(jobs, LARGE) == [0]


@pytest.mark.parametrize("policy", ["fifo", "tetris", "dally"])
def test_policies_that_place_gpus_alone_refuse_jobs_without(policy: str) -> None:
    with pytest.raises(SimulationError, match=f"1 of 2 jobs ask for no GPU, and {policy} places GPU jobs alone"):
        run_of([{}, {"gpus": 0, "cpus": 1}], "nodes=1,gpus=2", policy)


@pytest.mark.parametrize("policy", ["rules", "forecast-oracle"])
def test_the_advisor_runs_beside_jobs_without_gpus(policy: str) -> None:
    jobs = [{"gpus": 4}, {"gpus": 4, "submit_time": 1}, {"gpus": 0, "cpus": 9}, {"gpus": 0, "cpus": 9}]

    assert count_ends(run_of(jobs, cluster_of(LARGE), policy)).finished == 4


@pytest.mark.parametrize("policy", ["order-limits", "order-oracle", "order-fair"])
def test_a_line_is_sorted_with_jobs_without_gpus_by_the_gpus_that_their_cpus_come_with(policy: str) -> None:
    size = {"submit_time": 1, "run_time_s": 1000, "time_limit_s": 1000, "cpus_per_gpu": 2}
    jobs = [
        {**size, "submit_time": 0, "gpus": 4},
        {**size, "gpus": 4},
        {**size, "gpus": 0, "cpus": 6},
        {**size, "gpus": 2},
    ]

    run = run_of(jobs, "nodes=1,gpus=4,cpus=8", policy)

    assert run.outcomes["start_time"].argsort(kind="stable").tolist() == [0, 3, 2, 1]


def test_metrics_of_jobs_without_gpus() -> None:
    run = slurm_run([{"gpus": 0, "cpus": 1}], cluster_of(LARGE))

    assert summarise(run).gpu_allocated_ratio == 0.0
    assert by_gpus(run.trace).names == ("0",)
