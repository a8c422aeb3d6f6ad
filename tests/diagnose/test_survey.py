"""The cluster at a glance: what is counted as what."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.diagnose.survey import overview, stopped_partitions
from advisor.domain.gang import GangRequest, GpuCount, GpuScope, ShareCount
from advisor.domain.job import ArrayRecord, Job
from advisor.domain.node import GpuPool
from advisor.domain.overview import (
    GpuTypeOverview,
    IdleGpus,
    JobCounts,
    LargestGang,
    OldestPending,
    ShareOverview,
    StoppedPartition,
)
from advisor.domain.snapshot import Snapshot
from advisor.view.terminal import stopped_sentence
from tests.builders import (
    HOUR_S,
    TAKEN_AT,
    make_config,
    make_gang,
    make_job,
    make_node,
    make_partition,
    make_snapshot,
    make_topology,
)
from tests.examples import examples
from tests.strategies import snapshots


def only_type(snapshot: Snapshot) -> GpuTypeOverview:
    """The one GPU type of a cluster."""
    (found,) = overview(snapshot).gpu_types
    return found


def idle(snapshot: Snapshot) -> IdleGpus:
    """The idle GPUs of the one type."""
    found = only_type(snapshot).idle
    assert found is not None
    return found


def test_every_gpu_is_in_use_idle_or_unavailable() -> None:
    nodes = [
        make_node("n1", 8, 3),
        make_node("n2", 8, 8),
        make_node("n3", 8, 2, flags=("DRAIN",)),
        make_node("n4", 8, 0, state="DOWN"),
    ]

    found = only_type(make_snapshot(nodes=nodes))

    assert (found.gpu_type, found.total, found.in_use, found.unavailable) == ("gpu", 32, 13, 14)
    assert found.idle == IdleGpus(startable=5, by_cpus=0, by_memory=0, by_fragmentation=0)
    assert found.idle.total == 5


def test_types_are_counted_apart() -> None:
    pools = (GpuPool(gpu_type="v100", total=2, used=1), GpuPool(gpu_type="a100", total=8, used=2))
    jobs = [
        make_job(1, gang=make_gang(per_job=(GpuCount(gpu_type="a100", count=4), GpuCount(gpu_type="v100", count=1)))),
        make_job(2, gang=make_gang(2, gpu_type="a100", scope=GpuScope.TASK, tasks=3)),
        make_job(3, gpus=5),
    ]
    snapshot = make_snapshot(jobs, [replace(make_node("n1"), gpus=pools), make_node("n2", 0)])

    found = overview(snapshot)

    assert [(one.gpu_type, one.total, one.in_use, one.pending_jobs, one.pending_gpus) for one in found.gpu_types] == [
        ("a100", 8, 2, 2, 10),
        ("v100", 2, 1, 1, 1),
    ]
    assert (found.pending_gpu_jobs, found.pending_gpus, found.pending_gpus_any_type) == (3, 16, 5)


def test_unknown_use_is_said_and_no_number_is_made_of_it() -> None:
    nodes = [make_node("n1", used=None), make_node("n2", used=4)]

    snapshot = make_snapshot([make_job(1, gpus=3)], nodes, unread=("nodes",))

    assert only_type(snapshot) == GpuTypeOverview(
        gpu_type="gpu",
        total=16,
        in_use=None,
        unavailable=None,
        idle=None,
        largest=None,
        pending_jobs=0,
        pending_gpus=0,
    )
    assert overview(snapshot).unread == ("nodes", "how many gpu GPUs are in use on 1 of the nodes")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, (3, 0, 0), id="nothing lacks"),
        pytest.param({"cpus_used": 64}, (0, 3, 0), id="no CPU"),
        pytest.param({"memory_used_mib": 512_000}, (0, 0, 3), id="no memory"),
        pytest.param({"memory_used_mib": 512_000, "cpus_used": 64}, (0, 3, 0), id="neither"),
    ],
)
def test_gpus_of_a_node_without_cpus_or_memory_are_stranded(
    fields: dict[str, int], expected: tuple[int, int, int]
) -> None:
    found = idle(make_snapshot(nodes=[make_node("n1", used=5, **fields)]))  # type: ignore[arg-type]  # one table of fields

    assert (found.startable, found.by_cpus, found.by_memory, found.by_fragmentation) == (*expected, 0)


def test_memory_strands_nothing_where_it_is_not_handed_out() -> None:
    node = make_node("n1", used=5, memory_used_mib=512_000)
    jobs = [make_job(1, gang=make_gang(3, memory_mib_per_node=1000))]

    found = idle(make_snapshot(jobs, [node], config=make_config(select_parameters=("CR_CORE",))))

    assert found == IdleGpus(startable=3, by_cpus=0, by_memory=0, by_fragmentation=0)


@pytest.mark.parametrize(
    ("gang", "part"),
    [
        pytest.param(make_gang(3, nodes_max=1), "startable", id="fits"),
        pytest.param(make_gang(4, nodes_max=1), "by_fragmentation", id="one GPU short"),
        pytest.param(make_gang(4), "startable", id="any number of nodes"),
        pytest.param(make_gang(11, nodes_max=2), "startable", id="the other node gives eight"),
        pytest.param(make_gang(12, nodes_max=2), "by_fragmentation", id="the other node gives no more than eight"),
        pytest.param(make_gang(4, scope=GpuScope.NODE), "by_fragmentation", id="per node"),
        pytest.param(make_gang(2, scope=GpuScope.TASK, tasks=4), "startable", id="one task"),
        pytest.param(make_gang(4, scope=GpuScope.SOCKET), "by_fragmentation", id="one socket"),
        pytest.param(make_gang(1, exclusive=True), "by_fragmentation", id="whole nodes"),
        pytest.param(make_gang(3, nodes_max=1, cpus=31), "by_cpus", id="one CPU short"),
        pytest.param(make_gang(3, nodes_max=2, cpus=60), "startable", id="half of the CPUs"),
        pytest.param(make_gang(1, scope=GpuScope.TASK, tasks=2, cpus=62), "by_cpus", id="CPUs of a task"),
        pytest.param(replace(make_gang(3, nodes_max=1), cpus_per_gpu=11), "by_cpus", id="CPUs per GPU"),
        pytest.param(replace(make_gang(3, nodes_max=1), cpus_per_gpu=10), "startable", id="just enough CPUs per GPU"),
        pytest.param(make_gang(3, memory_mib_per_node=2001), "by_memory", id="one MiB short"),
        pytest.param(make_gang(3, cpus=31, nodes_max=1, memory_mib_per_node=2001), "by_memory", id="both short"),
        pytest.param(make_gang(9, nodes_max=1), "startable", id="never fits a node"),
        pytest.param(make_gang(4, gpu_type="a100"), "startable", id="another type"),
        pytest.param(make_gang(4, nodes_max=1, excluded_nodes=("n1",)), "startable", id="node excluded"),
        pytest.param(make_gang(4, nodes_max=1, required_nodes=("n2",)), "startable", id="other node required"),
        pytest.param(make_gang(4, nodes_max=1, required_nodes=("n1",)), "by_fragmentation", id="node required"),
        pytest.param(make_gang(0), "startable", id="CPUs only"),
    ],
)
def test_idle_gpus_are_named_after_what_keeps_pending_jobs_from_them(gang: GangRequest, part: str) -> None:
    nodes = [make_node("n1", used=5, cpus_used=34, memory_used_mib=510_000), make_node("n2", used=8)]

    found = idle(make_snapshot([make_job(1, gang=gang)], nodes))

    assert getattr(found, part) == found.total == 3


def test_one_job_that_fits_redeems_the_idle_gpus() -> None:
    nodes = [make_node("n1", used=5), make_node("n2", used=8)]
    jobs = [make_job(1, gang=make_gang(8, nodes_max=1)), make_job(2, gang=make_gang(2, nodes_max=1))]

    assert idle(make_snapshot(jobs, nodes)).startable == 3
    assert idle(make_snapshot([jobs[0], replace(jobs[1], held=True)], nodes)).by_fragmentation == 3
    assert idle(make_snapshot([jobs[0], replace(jobs[1], partitions=("other",))], nodes)).by_fragmentation == 3


def test_largest_gang_on_a_node_a_leaf_and_anywhere() -> None:
    nodes = [
        make_node("n1", used=3),
        make_node("n2", used=4),
        make_node("n3", used=1),
        make_node("n4", used=0, cpus_used=64),
        make_node("n5", used=0, memory_used_mib=512_000),
        make_node("n6", used=0, state="DOWN"),
    ]
    topology = make_topology({"leaf1": ["n1", "n2"], "leaf2": ["n3", "n4"]})

    found = only_type(make_snapshot(nodes=nodes, topology=topology)).largest

    assert found == LargestGang(on_node=7, under_leaf=9, anywhere=16)


def test_largest_gang_stays_inside_a_partition_that_is_up() -> None:
    partitions = [
        make_partition("a", nodes=("n1", "n2")),
        make_partition("b", nodes=("n3",)),
        make_partition("down", nodes=("n1", "n2", "n3"), is_up=False),
    ]
    nodes = [make_node(f"n{number}") for number in range(1, 4)]
    flat = replace(make_topology(), switches=())

    found = only_type(make_snapshot(nodes=nodes, partitions=partitions, topology=flat)).largest
    shut = only_type(make_snapshot(nodes=nodes, partitions=partitions[2:], topology=flat)).largest

    assert found == LargestGang(on_node=8, under_leaf=None, anywhere=16)
    assert shut == LargestGang(on_node=0, under_leaf=None, anywhere=0)


def test_shares_are_reported_apart() -> None:
    nodes = [make_node("n1", shares=(ShareCount(kind="mps", count=400),)), make_node("n2", 0)]
    jobs = [
        make_job(1, gang=make_gang(0, shares=(ShareCount(kind="mps", count=50),))),
        make_job(2, gang=make_gang(0, shares=(ShareCount(kind="shard", count=2),))),
        make_job(3),
    ]

    found = overview(make_snapshot(jobs, nodes))

    assert found.shares == (
        ShareOverview(kind="mps", total=400, pending_jobs=1, pending=50),
        ShareOverview(kind="shard", total=0, pending_jobs=1, pending=2),
    )
    assert found.pending_gpu_jobs == 1


def test_jobs_are_counted_by_what_keeps_them() -> None:
    jobs = [
        make_job(1),
        make_job(2, held=True),
        make_job(3, dependency="afterok:1"),
        make_job(4, eligible_time=TAKEN_AT + 60),
        make_job(5, gpus=0),
        make_job(6, gang=make_gang(0, gpus_known=False)),
        make_job(7, running_on=["n01"]),
        make_job(8, gpus=0, running_on=["n02"]),
        make_job(9, array=ArrayRecord(array_job_id=9, waiting="0-3,7%2"), held=True),
        make_job(10, array=ArrayRecord(array_job_id=9, task_id=4)),
        make_job(11, gang=make_gang(1, scope=GpuScope.SOCKET)),
    ]

    found = overview(make_snapshot(jobs))

    assert found.jobs == JobCounts(
        running=2,
        pending=13,
        held=6,
        dependent=1,
        deferred=1,
        running_cpu_only=1,
        pending_cpu_only=1,
        pending_gpus_unknown=1,
    )
    assert (found.pending_gpu_jobs, found.pending_gpu_jobs_unsized, found.pending_gpus) == (11, 1, 10)


@pytest.mark.parametrize(
    ("older", "expected"),
    [
        pytest.param(
            make_job(1, submitted_ago_s=9 * HOUR_S), OldestPending(job_id=1, queueing_delay_s=9 * HOUR_S), id="eligible"
        ),
        pytest.param(
            make_job(1, submitted_ago_s=2 * HOUR_S), OldestPending(job_id=1, queueing_delay_s=2 * HOUR_S), id="tie"
        ),
        pytest.param(make_job(1, submitted_ago_s=9 * HOUR_S, held=True), None, id="held"),
        pytest.param(make_job(1, submitted_ago_s=9 * HOUR_S, dependency="singleton"), None, id="dependent"),
        pytest.param(make_job(1, submitted_ago_s=9 * HOUR_S, eligible_time=None), None, id="not eligible"),
        pytest.param(make_job(1, submitted_ago_s=9 * HOUR_S, eligible_time=TAKEN_AT + 1), None, id="deferred"),
        pytest.param(make_job(1, submitted_ago_s=9 * HOUR_S, running_on=["n01"]), None, id="running"),
    ],
)
def test_oldest_job_is_the_one_eligible_longest(older: Job, expected: OldestPending | None) -> None:
    found = overview(make_snapshot([older, make_job(2, submitted_ago_s=2 * HOUR_S)]))

    assert found.oldest == (expected or OldestPending(job_id=2, queueing_delay_s=2 * HOUR_S))


def test_empty_cluster_has_an_overview() -> None:
    found = overview(make_snapshot(nodes=[]))

    assert (found.taken_at, found.gpu_types, found.oldest) == (TAKEN_AT, (), None)


@settings(max_examples=examples(50), deadline=None)
@given(snapshots())
def test_numbers_of_a_type_add_up(snapshot: Snapshot) -> None:
    for found in overview(snapshot).gpu_types:
        assert found.in_use is not None
        assert found.unavailable is not None
        assert found.idle is not None
        assert found.largest is not None
        assert found.total == found.in_use + found.unavailable + found.idle.total
        assert found.largest.on_node <= found.largest.anywhere <= found.idle.total
        assert (found.largest.under_leaf or 0) <= found.largest.anywhere


@settings(max_examples=examples(50), deadline=None)
@given(snapshots(), st.randoms())
def test_listing_order_does_not_matter(snapshot: Snapshot, random: Random) -> None:
    jobs, nodes = list(snapshot.jobs), list(snapshot.nodes)
    random.shuffle(jobs)
    random.shuffle(nodes)

    assert overview(replace(snapshot, jobs=tuple(jobs), nodes=tuple(nodes))) == overview(snapshot)


def test_partition_that_is_down_is_counted_with_the_jobs_that_can_start_nowhere_else() -> None:
    nodes = [make_node("n1", 8, 2), make_node("n2", 8, 0, state="DOWN"), make_node("n3", 8, 0)]
    partitions = [
        make_partition("gpu", nodes=("n1", "n2"), is_up=False),
        make_partition("debug", nodes=("n3",)),
        make_partition("empty", nodes=("n3",), is_up=False),
    ]
    jobs = [
        make_job(1, gang=make_gang(4), partitions=("gpu",)),
        make_job(2, gang=make_gang(2), partitions=("gpu",), array=ArrayRecord(array_job_id=2, waiting="0-2")),
        make_job(3, gang=make_gang(2), partitions=("gpu", "debug")),
        make_job(4, gang=make_gang(2), partitions=("debug",)),
    ]

    seen = make_snapshot(jobs, nodes, partitions=partitions)
    found = overview(seen)

    assert stopped_partitions(seen) == found.stopped
    assert stopped_partitions(make_snapshot(jobs, nodes, partitions=partitions[1:])) == ()
    assert found.stopped == (StoppedPartition(name="gpu", pending_jobs=4, pending_gpus=10, idle_gpus=6),)
    assert stopped_sentence(found.stopped[0]) == (
        "partition gpu is not up: 4 GPU jobs wait for 10 GPUs, and 6 are idle there; "
        "to do: `scontrol update PartitionName=gpu State=UP`"
    )


def test_partition_that_is_up_stops_nothing() -> None:
    assert overview(make_snapshot([make_job(1, gang=make_gang(4))], [make_node("n1", 8, 8)])).stopped == ()
