"""Partitions of the model of slurmctld: tiers, shared nodes, jobs that can start in several."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.run_outcome import End, Run
from advisor.sim.slurm.queue_tables import PartitionTable
from advisor.sim.slurm.slurmctld import prioritise, run_slurm
from advisor.sim.traces.trace import Trace
from tests.sim.building import FIRST_COME, make_trace, model_of, run_of, slurm_at, starts_and_ends
from tests.sim.internals import insert

NODES = NodeGroup(count=4, gpus=4)
NAMES = Cluster(nodes=(NODES,)).node_names
# No backfill: what the main pass leaves waits until the next change.
NO_BACKFILL = replace(FIRST_COME, bf_interval_s=1e9)


def named(partitions: Sequence[str], jobs: Sequence[Mapping[str, Any]]) -> Trace:
    """Return a trace whose jobs name their partition."""
    names = tuple(dict.fromkeys(partitions))
    rows = [{**job, "partition": names.index(name)} for name, job in zip(partitions, jobs, strict=True)]
    return replace(make_trace(rows), partitions=names)


def part(name: str, first: int, last: int, **settings: Any) -> PartitionTable:
    """Return a partition with the nodes from `first` to before `last`."""
    return PartitionTable(name=name, nodes=",".join(NAMES[first:last]), **settings)


def cluster_of(*partitions: PartitionTable, slurm: SlurmParameters = NO_BACKFILL) -> Cluster:
    return Cluster(nodes=(NODES,), slurm=slurm, partitions=partitions)


def starts(run: Run) -> list[float]:
    return [start for start, _ in starts_and_ends(run)]


FULL_NODE: dict[str, Any] = {"gpus": 4, "run_time_s": 100}


def test_a_higher_tier_goes_first_whatever_the_priority() -> None:
    cluster = cluster_of(part("low", 0, 1), part("high", 0, 1, priority_tier=2))
    trace = named(["low", "low", "high"], [FULL_NODE, {**FULL_NODE, "nice": -50}, {**FULL_NODE, "submit_time": 1}])

    assert starts(run_of(trace, cluster, "slurm")) == [200, 0, 100]


def test_a_blocked_partition_blocks_no_other_with_nodes_of_its_own() -> None:
    cluster = cluster_of(part("left", 0, 2), part("right", 2, 4))
    wide = {"gpus": 8, "nodes_min": 2, "nodes_max": 2}
    trace = named(
        ["left", "left", "right", "left"],
        [FULL_NODE, {**wide, "submit_time": 1}, {"submit_time": 2}, {"submit_time": 3}],
    )

    # The last would fit beside the first; the one before it in its partition does not.
    assert starts(run_of(trace, cluster, "slurm"))[1:] == [100, 2, 200]


def test_nodes_of_a_blocked_partition_are_closed_to_lower_ones() -> None:
    cluster = cluster_of(part("all", 0, 4, priority_tier=2), part("half", 2, 4))
    wide = {"gpus": 16, "nodes_min": 4, "nodes_max": 4, "submit_time": 1}
    trace = named(["half", "all", "half"], [FULL_NODE, wide, {"submit_time": 2}])

    assert starts(run_of(trace, cluster, "slurm")) == [0, 100, 200]


def test_backfill_keeps_a_reservation_of_a_higher_tier_on_shared_nodes() -> None:
    cluster = cluster_of(part("all", 0, 4, priority_tier=2), part("half", 2, 4), slurm=FIRST_COME)
    wide = {"gpus": 16, "nodes_min": 4, "nodes_max": 4, "submit_time": 1, "time_limit_s": 100}
    trace = named(
        ["half", "all", "half", "half"],
        [
            {**FULL_NODE, "time_limit_s": 100},
            wide,
            {"submit_time": 2, "time_limit_s": 200},
            {"submit_time": 3, "run_time_s": 10, "time_limit_s": 60},
        ],
    )

    # The pass at 30 starts what ends before 100.
    assert starts(run_of(trace, cluster, "slurm")) == [0, 100, 200, 30]


def test_a_job_starts_only_on_nodes_of_its_partition() -> None:
    trace = named(["left"] * 3, [FULL_NODE] * 3)

    assert starts(run_of(trace, cluster_of(part("left", 0, 2), part("right", 2, 4)), "slurm")) == [0, 0, 100]


def test_a_job_of_two_partitions_starts_in_the_one_with_nodes_and_leaves_the_other() -> None:
    cluster = cluster_of(part("left", 0, 1), part("right", 1, 2))
    trace = named(
        ["left", "left,right", "right", "left"],
        [FULL_NODE, {**FULL_NODE, "submit_time": 1}, {**FULL_NODE, "submit_time": 2}, {**FULL_NODE, "submit_time": 3}],
    )
    state, slurm = model_of(trace, cluster)

    run_slurm(state, slurm, 50.0)

    assert state.jobs["start_time"][1] == 1.0
    assert state.held_nodes[state.jobs["pool"][1]] == 1
    # Only the two that wait are in the line.
    assert slurm.line[: int(slurm.control["lined"][0])].tolist() == [2, 3]
    assert int(state.tally["pending"][0]) == 2
    run_slurm(state, slurm, np.inf)
    assert state.jobs["start_time"].tolist() == [0, 1, 101, 100]


def test_entries_of_a_job_stand_by_the_factors_of_their_partitions() -> None:
    slurm = replace(NO_BACKFILL, priority_weight_partition=100.0)
    cluster = cluster_of(
        part("low", 0, 1, priority_job_factor=10), part("high", 1, 2, priority_job_factor=40), slurm=slurm
    )
    state, model = model_of(named(["low,high", "low"], [{}, {"nice": -50}]), cluster)
    for row in (0, 1):
        prioritise(state, model, row, 0.0)
        insert(state, model, row)

    # 100 in `high`, 75 of the second job, 25 in `low`.
    assert model.line.tolist() == [2, 1, 0]
    assert state.jobs["priority"].tolist() == [25.0, 75.0]
    assert model.extras["priority"].tolist() == [100.0]


@pytest.mark.parametrize(
    ("table", "job"),
    [
        (part("short", 0, 4, max_time_s=60.0), {"time_limit_s": 100}),
        (part("short", 0, 4, max_nodes=1), {"gpus": 8, "nodes_min": 2, "nodes_max": 2}),
        (part("short", 0, 4, state="down"), {}),
        (part("short", 0, 1), {"gpus": 8, "nodes_min": 2, "nodes_max": 2}),
    ],
    ids=["time limit", "nodes", "down", "too few nodes"],
)
def test_a_job_that_its_partition_never_starts_blocks_no_other(table: PartitionTable, job: dict[str, Any]) -> None:
    cluster = cluster_of(table, part("long", 0, 4))
    trace = named(["short", "long", "short,long"], [job, {"submit_time": 1}, {**job, "submit_time": 2}])

    run = run_of(trace, cluster, "slurm")

    assert run.outcomes["end"].tolist() == [End.IMPOSSIBLE, End.FINISHED, End.FINISHED]
    assert starts(run)[1:] == [1, 2]


def test_a_job_without_a_time_limit_gets_that_of_its_partition() -> None:
    state, _ = model_of(named(["short"], [{}]), cluster_of(part("short", 0, 4, max_time_s=60.0)))

    assert state.jobs["limit_s"].tolist() == [60.0]


def test_jobs_that_name_no_partition_of_the_cluster_use_the_default() -> None:
    run = run_of(
        named(["", "gpu"], [FULL_NODE] * 2), cluster_of(part("left", 0, 3), part("right", 3, 4, default=True)), "slurm"
    )

    assert starts(run) == [0, 100]


@pytest.mark.parametrize(
    ("partition", "tables", "message"),
    [
        ("gpu", (part("left", 0, 1),), "jobs of the trace name none of left, and none is default"),
        ("", (part("left", 0, 1),), "jobs of the trace name none of left, and none is default"),
        ("left", (PartitionTable(name="left", nodes="n9"),), "partitions.nodes of left: there is no node n9"),
        ("left", (PartitionTable(name="left", nodes="n[1-"),), "partitions.nodes of left"),
    ],
)
def test_unknown_partitions_and_nodes_are_refused(
    partition: str, tables: tuple[PartitionTable, ...], message: str
) -> None:
    with pytest.raises(SimulationError, match=message.replace("[", r"\[")):
        run_of(named([partition], [{}]), cluster_of(*tables), "slurm")


def test_partition_job_depth_bounds_the_jobs_tested_in_each_partition() -> None:
    cluster = cluster_of(part("left", 0, 2), part("right", 2, 4), slurm=replace(NO_BACKFILL, partition_job_depth=1))
    trace = named(["right", "left", "left", "right"], [{}, *[{"submit_time": 10}] * 3])

    # The next pass, a minute after the first, takes the third.
    assert starts(run_of(trace, cluster, "slurm")) == [0, 10, 60, 10]


def test_a_snapshot_shows_partitions_and_where_jobs_can_start() -> None:
    cluster = cluster_of(part("left", 0, 1, max_time_s=900.0), part("right", 0, 4, priority_tier=3, state="up"))
    trace = named(
        ["right", "left", "left,right"],
        [{"gpus": 16, "nodes_min": 4, "nodes_max": 4}, {"submit_time": 1}, {"submit_time": 2}],
    )

    snapshot = slurm_at(50.0, trace, cluster).snapshot()

    assert [job.partitions for job in snapshot.jobs] == [("right",), ("left",), ("left", "right")]
    assert [node.partitions for node in snapshot.nodes] == [("left", "right"), ("right",), ("right",), ("right",)]
    assert [(each.name, each.priority_tier, each.max_time_s) for each in snapshot.partitions] == [
        ("left", 1, 900.0),
        ("right", 3, None),
    ]


def test_backfill_tests_no_more_jobs_of_a_user_than_allowed() -> None:
    jobs = [
        {"gpus": 3, "run_time_s": 500, "time_limit_s": 500, "user": "cy"},
        {"gpus": 4, "submit_time": 1, "time_limit_s": 100, "user": "ann"},
        {"submit_time": 2, "time_limit_s": 100, "run_time_s": 90, "user": "ann"},
        {"submit_time": 3, "time_limit_s": 100, "run_time_s": 90, "user": "bob"},
    ]
    one_node = Cluster(nodes=(NodeGroup(count=1, gpus=4),), slurm=FIRST_COME)

    free = run_of(jobs, one_node, "slurm")
    bounded = run_of(jobs, replace(one_node, slurm=replace(FIRST_COME, bf_max_job_user=1)), "slurm")

    # The first job of ann uses up her test of each pass.
    assert starts(free)[2:] == [30, 120]
    assert starts(bounded)[2:] == [600, 30]


@pytest.mark.parametrize(
    "slurm",
    [
        replace(FIRST_COME, bf_max_job_part=1),
        replace(FIRST_COME, bf_max_job_assoc=1),
        replace(FIRST_COME, bf_max_job_user_part=1),
    ],
    ids=["partition", "association", "user in a partition"],
)
def test_backfill_tests_no_more_jobs_of_one_kind_than_allowed(slurm: SlurmParameters) -> None:
    jobs = [
        {"gpus": 3, "run_time_s": 500, "time_limit_s": 500},
        {"gpus": 4, "submit_time": 1, "time_limit_s": 100},
        {"submit_time": 2, "time_limit_s": 100, "run_time_s": 90},
    ]
    one_node = Cluster(nodes=(NodeGroup(count=1, gpus=4),), slurm=slurm)

    assert starts(run_of(jobs, one_node, "slurm")) == [0, 500, 600]


def test_backfill_starts_no_more_jobs_in_a_pass_than_allowed() -> None:
    jobs = [
        {"gpus": 2, "run_time_s": 500, "time_limit_s": 500},
        {"gpus": 4, "submit_time": 1, "time_limit_s": 100},
        *({"submit_time": 2, "time_limit_s": 100, "run_time_s": 90} for _ in range(2)),
    ]
    one_node = Cluster(nodes=(NodeGroup(count=1, gpus=4),), slurm=replace(FIRST_COME, bf_max_job_start=1))

    assert starts(run_of(jobs, one_node, "slurm"))[2:] == [30, 120]


@pytest.mark.parametrize(
    "slurm",
    [replace(FIRST_COME, bf_min_age_reserve_s=1000.0), replace(FIRST_COME, bf_min_prio_reserve=2.0)],
    ids=["too young", "priority too low"],
)
def test_a_job_without_the_right_to_reserve_holds_nothing(slurm: SlurmParameters) -> None:
    jobs = [
        {"gpus": 3, "run_time_s": 50, "time_limit_s": 50},
        {"gpus": 4, "submit_time": 1, "time_limit_s": 100},
        {"submit_time": 2, "time_limit_s": 400, "run_time_s": 90},
    ]
    one_node = Cluster(nodes=(NodeGroup(count=1, gpus=4),), slurm=slurm)

    # The third does not wait for the second.
    assert starts(run_of(jobs, one_node, "slurm")) == [0, 92, 2]
