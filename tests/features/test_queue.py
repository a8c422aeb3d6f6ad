"""The line of competing jobs and the pools they stand in."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.domain.gang import GpuScope
from advisor.domain.job import Job, waiting_tasks
from advisor.domain.snapshot import Snapshot
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


def test_width_of_an_elastic_job_does_not_depend_on_its_present_size() -> None:
    small, large = (make_job(1, gpus=gpus, hints=make_hints(gpus=(2, 8))) for gpus in (2, 8))

    widths = [table_of(make_snapshot([job])).width[0] for job in (small, large)]

    assert widths == [2.0, 2.0]


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
