"""The line of competing jobs and the pools they stand in."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.domain.gang import GangRequest, GpuScope
from advisor.domain.job import ArrayRecord, Job, waiting_tasks
from advisor.domain.node import Node
from advisor.domain.snapshot import Snapshot
from advisor.features.columns import Columns
from advisor.features.nodes import node_table
from advisor.features.queue import ANY_TYPE, QueueTable, jobs_within_depth, queue_table
from advisor.features.supply import backfilled, latest_starts_s, releases
from tests.builders import (
    HOUR_S,
    TAKEN_AT,
    make_config,
    make_gang,
    make_hints,
    make_job,
    make_node,
    make_partition,
    make_snapshot,
)


def table_of(snapshot: Snapshot) -> QueueTable:
    """Build the table of a snapshot, deep enough for every test."""
    return queue_table(snapshot, node_table(snapshot), 100)


def ids(jobs: tuple[Job, ...]) -> list[int]:
    """Return the job ids in order."""
    return [job.job_id for job in jobs]


def test_queue_can_be_empty_beside_a_partition_that_gives_whole_nodes() -> None:
    whole = replace(make_partition("whole"), over_subscribe="EXCLUSIVE")

    assert not table_of(make_snapshot(partitions=[make_partition(), whole])).gpus.size


def test_jobs_stand_in_the_order_slurm_considers_them() -> None:
    jobs = [
        make_job(1, priority=10),
        make_job(2, priority=30),
        make_job(3, priority=20, submitted_ago_s=60),
        make_job(4, priority=20, submitted_ago_s=90),
        make_job(5, priority=20, submitted_ago_s=90),
    ]

    assert ids(table_of(make_snapshot(jobs)).jobs) == [2, 4, 5, 3, 1]


def test_backfill_tests_the_first_jobs_of_the_line_by_tier_and_priority() -> None:
    jobs = [
        make_job(1, priority=10, partitions=("urgent",)),
        make_job(2, gpus=0, priority=40),
        make_job(3, priority=30),
        make_job(4, priority=20),
        make_job(5, priority=90, dependency="afterok:1"),
        make_job(6, priority=0, held=True),
        make_job(7, running_on=["n01"], priority=90),
    ]
    partitions = [make_partition(), make_partition("urgent", priority_tier=2)]
    snapshot = make_snapshot(
        jobs, partitions=partitions, config=make_config(scheduler_parameters={"bf_max_job_test": "3"})
    )

    assert jobs_within_depth(snapshot) == {1, 2, 3}
    assert jobs_within_depth(replace(snapshot, config=make_config())) == {1, 2, 3, 4}


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(make_job(1, held=True), id="held"),
        pytest.param(make_job(1, dependency="afterok:3"), id="dependent"),
        pytest.param(make_job(1, eligible_time=TAKEN_AT + 1), id="deferred"),
        pytest.param(make_job(1, reason="BeginTime"), id="begin time"),
        pytest.param(make_job(1, reason="AssocGrpGRES"), id="limit of the account"),
        pytest.param(make_job(1, reason="JobArrayTaskLimit"), id="limit of the array"),
        pytest.param(make_job(1, reason="SomethingNew"), id="reason unknown"),
        pytest.param(make_job(1, running_on=["n01"]), id="running"),
        pytest.param(make_job(1, gpus=0), id="no GPUs"),
        pytest.param(make_job(1, gang=make_gang(1, scope=GpuScope.SOCKET)), id="size unknown"),
        pytest.param(make_job(1, priority=None), id="priority unknown"),
        pytest.param(make_job(1, partitions=("cpu",)), id="partition without GPUs"),
        pytest.param(make_job(1, gang=make_gang(1, gpu_type="h100")), id="type that no node has"),
    ],
)
def test_job_that_does_not_compete_is_left_out(job: Job) -> None:
    assert ids(table_of(make_snapshot([job])).jobs) == []


def test_gang_of_any_type_has_no_place_where_no_gpus_are_in_service() -> None:
    snapshot = make_snapshot([make_job(1)], [make_node("n01", state="DOWN")])

    assert ids(table_of(snapshot).jobs) == []


def test_partitions_that_share_nodes_share_a_pool_of_their_tier() -> None:
    nodes = [make_node(f"n{number}") for number in range(1, 6)]
    partitions = [
        make_partition("a", nodes=("n1", "n2")),
        make_partition("b", nodes=("n3",)),
        make_partition("c", nodes=("n2", "n3")),
        make_partition("d", nodes=("n4",)),
        make_partition("e", nodes=("n1", "n2"), priority_tier=5),
        make_partition("none", nodes=()),
    ]
    jobs = [make_job(number, partitions=(name,)) for number, name in enumerate("abcde", start=1)]

    queue = table_of(make_snapshot(jobs, nodes, partitions=partitions))
    pool = {job.job_id: int(queue.pool[row]) for row, job in enumerate(queue.jobs)}

    assert pool[1] == pool[2] == pool[3]
    assert len({pool[1], pool[4], pool[5]}) == 3
    assert queue.pool_gpus[pool[1]].tolist() == [24]
    assert queue.pool_gpus[pool[5]].tolist() == [16]


def taken_by(job: Job, *nodes: Node, over_subscribe: str = "NO") -> float:
    """Return the GPUs that a job takes on nodes of 8 GPUs, 64 CPUs and 512,000 MiB, or on others."""
    nodes = nodes or (make_node("n01"), make_node("n02"))
    partition = replace(make_partition(nodes=[node.name for node in nodes]), over_subscribe=over_subscribe)
    return float(table_of(make_snapshot([job], nodes, partitions=[partition])).width[0])


def test_job_with_a_range_counts_with_the_size_that_it_asks_for_until_a_smaller_one_is_set() -> None:
    small, large = (make_job(1, gpus=gpus, hints=make_hints(gpus=(1, 8))) for gpus in (2, 8))

    assert [taken_by(job) for job in (small, large)] == [2.0, 8.0]


@pytest.mark.parametrize(
    ("gang", "taken"),
    [
        pytest.param(make_gang(1), 1.0, id="one GPU"),
        pytest.param(make_gang(1, cpus=8, memory_mib_per_node=64_000), 1.0, id="shares no larger than that of GPUs"),
        pytest.param(make_gang(1, cpus=32), 4.0, id="CPUs"),
        pytest.param(make_gang(1, cpus_per_gpu=32), 4.0, id="CPUs by GPU"),
        pytest.param(replace(make_gang(1), cpus_per_node=32), 4.0, id="CPUs by node"),
        pytest.param(make_gang(1, memory_mib_per_node=384_000), 6.0, id="memory"),
        pytest.param(make_gang(1, cpus=16, memory_mib_per_node=256_000), 4.0, id="the largest share"),
        pytest.param(make_gang(1, memory_mib_per_node=256_000, nodes_min=2), 8.0, id="memory on two nodes"),
        pytest.param(make_gang(1, exclusive=True), 8.0, id="exclusive"),
        pytest.param(make_gang(1, exclusive=True, nodes_min=2), 16.0, id="exclusive on two nodes"),
        pytest.param(replace(make_gang(1), only_beside="alice"), 8.0, id="beside jobs of one user"),
    ],
)
def test_job_takes_the_gpus_that_it_makes_unusable(gang: GangRequest, taken: float) -> None:
    assert taken_by(make_job(1, gang=gang)) == taken


def test_exclusive_job_takes_as_many_nodes_as_its_gpus_need() -> None:
    assert taken_by(make_job(1, gang=make_gang(9, exclusive=True))) == 16.0


def test_every_job_of_a_partition_of_whole_nodes_takes_whole_nodes() -> None:
    assert taken_by(make_job(1), over_subscribe="EXCLUSIVE") == 8.0


def test_cpus_that_several_jobs_share_count_nothing() -> None:
    assert taken_by(make_job(1, gang=make_gang(1, cpus=32)), over_subscribe="FORCE:4") == 1.0


def test_memory_counts_nothing_where_slurm_does_not_allocate_it() -> None:
    snapshot = make_snapshot([make_job(1, gang=make_gang(1, memory_mib_per_node=256_000))])
    widths = [
        table_of(replace(snapshot, config=make_config(select_parameters=(word,)))).width[0]
        for word in ("CR_CORE", "CR_CORE_MEMORY")
    ]

    assert widths == [1.0, 4.0]


def test_nodes_of_the_gpu_type_that_a_job_asks_for_count() -> None:
    nodes = [make_node("n01", gpu_type="a100"), make_node("n02", 4, gpu_type="h100")]

    typed = make_job(1, gang=make_gang(1, gpu_type="h100", exclusive=True))
    of_any_type = make_job(1, gang=make_gang(1, exclusive=True))

    assert [taken_by(job, *nodes) for job in (typed, of_any_type)] == [4.0, 6.0]


def test_slice_of_a_gpu_takes_its_share_and_an_exclusive_job_the_whole_gpus_of_the_node() -> None:
    node = make_node("n01", 14, gpu_type="1g.10gb")

    one, alone = (make_job(1, gang=make_gang(1, gpu_type="1g.10gb", exclusive=alone)) for alone in (False, True))

    assert [taken_by(job, node) for job in (one, alone)] == pytest.approx([1 / 7, 2.0])


def test_array_takes_what_all_its_waiting_tasks_take() -> None:
    array = make_job(1, gang=make_gang(1, exclusive=True), array=ArrayRecord(array_job_id=1, waiting="1-10"))

    assert taken_by(array) == 80.0


def test_unlimited_job_has_no_known_work() -> None:
    assert np.isnan(table_of(make_snapshot([make_job(1, time_limit_s=None)])).run.expected_s[0])


@pytest.mark.parametrize(
    ("text", "count"), [("3-6", 4), ("1,4-10:2", 5), ("7", 1), ("", 1), ("9-3", 1), ("1-4:0", 4), ("x-y", 1)]
)
def test_waiting_tasks_are_counted(text: str, count: int) -> None:
    assert waiting_tasks(text) == count


def test_latest_start_is_when_running_jobs_have_freed_enough() -> None:
    nodes = [make_node("n01", used=8, gpu_type="a100"), make_node("n02", used=6, gpu_type="v100")]
    jobs = [
        make_job(1, gang=make_gang(4, gpu_type="a100"), priority=30),
        make_job(2, gpus=2, priority=20),
        make_job(3, gang=make_gang(8, gpu_type="a100"), priority=10),
        make_job(8, gang=make_gang(8, gpu_type="a100"), running_on=["n01"], started_ago_s=0.0, time_limit_s=2 * HOUR_S),
        make_job(9, gang=make_gang(6, gpu_type="v100"), running_on=["n02"], started_ago_s=0.0, time_limit_s=HOUR_S),
    ]
    snapshot = make_snapshot(jobs, nodes)
    queue = table_of(snapshot)

    starts = latest_starts_s(queue, releases(snapshot, queue), np.arange(3), queue.gpus)

    # Job 2 takes any type: 4 + 2 GPUs come from 2 idle and the 6 freed after an hour. Job 3 finds 8 of 14 wanted.
    assert starts.tolist() == [2 * HOUR_S, HOUR_S, np.inf]
    assert queue.gpu_type.tolist() == [0, ANY_TYPE, 0]


def test_backfill_starts_what_fits_and_ends_before_the_largest_gang_can_start() -> None:
    nodes = [make_node("n01", used=8), make_node("n02", used=4)]
    jobs = [
        make_job(1, gpus=16, priority=30),
        make_job(2, gpus=4, priority=20, time_limit_s=HOUR_S),
        make_job(3, gpus=4, priority=20, time_limit_s=3 * HOUR_S),
        make_job(4, gpus=8, priority=20, time_limit_s=HOUR_S),
        make_job(9, gpus=12, running_on=["n01", "n02"], started_ago_s=0.0, time_limit_s=2 * HOUR_S),
    ]
    snapshot = make_snapshot(jobs, nodes)
    queue = table_of(snapshot)

    fits = backfilled(queue, releases(snapshot, queue), np.arange(4))

    assert dict(zip(ids(queue.jobs), fits.tolist(), strict=True)) == {1: False, 2: True, 3: False, 4: False}


def test_release_of_unknown_end_or_pool_is_not_counted_on() -> None:
    endless = make_job(9, gpus=8, running_on=["n01"], time_limit_s=None)
    elsewhere = replace(make_job(8, gpus=8, running_on=["n02"]), partitions=("cpu",))
    other_type = make_job(7, gang=make_gang(8, gpu_type="h100"), running_on=["n03"])
    snapshot = make_snapshot([make_job(1), endless, elsewhere, other_type])

    freed = releases(snapshot, table_of(snapshot))

    assert freed.after_s.tolist() == []


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Columns):
    """A column, texts, and a value for all rows."""

    numbers: NDArray[np.float64]
    names: tuple[str, ...] = ("a",)
    by_limits: bool = True


@pytest.mark.parametrize("size", [0, 2])
def test_columns_of_a_table_have_one_length(size: int) -> None:
    with pytest.raises(ValueError, match="differ in length"):
        Part(numbers=np.zeros(size))


def test_parts_taken_from_a_table_are_joined_to_it() -> None:
    table = Part(numbers=np.arange(3.0), names=("a", "b", "c"))

    joined = Part.join([table.take(slice(0, 1)), table.take(slice(1, 3))])

    assert (joined.numbers == table.numbers).all()
    assert (joined.names, joined.by_limits) == (table.names, table.by_limits)


def test_parts_that_differ_in_a_value_for_all_rows_are_not_joined() -> None:
    with pytest.raises(ValueError, match="parts of one table differ in a value for all rows"):
        Part.join([Part(numbers=np.zeros(1)), Part(numbers=np.zeros(1), by_limits=False)])
