"""What stands before each pending GPU job."""

import numpy as np
import pytest

from advisor.domain.gang import GpuScope
from advisor.domain.job import ArrayRecord, Job, JobState
from advisor.features.backlog import BacklogTable, backlog_table
from tests.builders import DAY_S, HOUR_S, TAKEN_AT, make_gang, make_job, make_partition, make_snapshot


def table_of(*jobs: Job) -> BacklogTable:
    """Build the table of these jobs on the cluster of the tests."""
    return backlog_table(make_snapshot(jobs))


def test_jobs_of_higher_priority_stand_before() -> None:
    table = table_of(
        make_job(1, priority=10, gpus=1, time_limit_s=HOUR_S),
        make_job(2, priority=30, gpus=4, time_limit_s=2 * HOUR_S),
        make_job(3, priority=20, gpus=2, time_limit_s=HOUR_S),
    )

    assert table.job_id.tolist() == [2, 3, 1]
    assert table.ahead.gpus.tolist() == [0.0, 4.0, 6.0]
    assert table.ahead.gpu_s.tolist() == [0.0, 8 * HOUR_S, 10 * HOUR_S]


def test_equals_go_by_submission_then_by_id() -> None:
    table = table_of(make_job(3, submitted_ago_s=60), make_job(2, submitted_ago_s=60), make_job(1, submitted_ago_s=30))

    assert table.job_id.tolist() == [2, 3, 1]


def test_own_account_and_partition_are_told_apart() -> None:
    table = table_of(
        make_job(1, priority=40, gpus=1, account="a", partitions=("gpu",)),
        make_job(2, priority=30, gpus=2, account="b", partitions=("long",)),
        make_job(3, priority=20, gpus=4, account="a", partitions=("long", "gpu")),
        make_job(4, priority=10, gpus=8, account="b", partitions=("gpu",)),
    )

    assert table.ahead_in_account.gpus.tolist() == [0.0, 0.0, 1.0, 2.0]
    assert table.ahead_in_partition.gpus.tolist() == [0.0, 0.0, 2.0, 1.0]


def test_waiting_tasks_of_an_array_count_one_by_one() -> None:
    array = ArrayRecord(array_job_id=1, waiting="3-7")

    table = table_of(make_job(1, priority=20, gpus=2, array=array), make_job(2, priority=10))

    assert table.ahead.gpus.tolist() == [0.0, 10.0]


def test_running_jobs_hold_their_gpus_until_their_limit() -> None:
    table = table_of(
        make_job(1, account="a"),
        make_job(2, account="b", priority=1),
        make_job(3, account="a", gpus=4, running_on=["n01"], started_ago_s=HOUR_S, time_limit_s=3 * HOUR_S),
        make_job(4, account="c", gpus=8, running_on=["n02"], started_ago_s=DAY_S, time_limit_s=HOUR_S),
    )

    assert table.running.gpus.tolist() == [12.0, 12.0]
    assert table.running.gpu_s.tolist() == [8 * HOUR_S, 8 * HOUR_S]
    assert table.running_in_account.gpus.tolist() == [4.0, 0.0]


def test_running_job_without_an_end_counts_by_its_start() -> None:
    table = table_of(
        make_job(1),
        make_job(2, gpus=2, running_on=["n01"], started_ago_s=HOUR_S, time_limit_s=3 * HOUR_S, end_time=None),
    )

    assert table.running.gpu_s.tolist() == [4 * HOUR_S]


def test_running_job_without_a_limit_counts_with_the_longest_there_is() -> None:
    table = table_of(
        make_job(1, time_limit_s=DAY_S),
        make_job(2, gpus=2, running_on=["n01"], time_limit_s=None, allocation=None),
    )

    assert table.running.gpu_s.tolist() == [2 * DAY_S]


def test_forecast_run_times_take_the_place_of_limits() -> None:
    jobs = [make_job(1, priority=20), make_job(2, priority=10), make_job(3, gpus=2, running_on=["n01"])]

    table = backlog_table(make_snapshot(jobs), {1: 600.0, 3: 60.0})

    assert table.ahead.gpu_s.tolist() == [0.0, 600.0]
    assert table.running.gpu_s.tolist() == [120.0, 120.0]
    assert not table.by_limits


def test_job_without_a_limit_counts_with_the_longest_there_is() -> None:
    table = table_of(make_job(1, priority=20, time_limit_s=None), make_job(2, priority=10, time_limit_s=DAY_S))

    assert table.ahead.gpu_s.tolist() == [0.0, DAY_S]
    assert np.isnan(table.limit_s).tolist() == [True, False]


def test_limit_of_the_partition_binds_where_the_job_has_none() -> None:
    snapshot = make_snapshot([make_job(1, time_limit_s=None)], partitions=[make_partition(max_time_s=HOUR_S)])

    assert backlog_table(snapshot).limit_s.tolist() == [HOUR_S]


def test_nothing_is_made_up_where_no_limit_is_known() -> None:
    table = table_of(make_job(1, priority=20, time_limit_s=None), make_job(2, priority=10, time_limit_s=None))

    assert np.isnan(table.ahead.gpu_s[1])
    assert table.ahead.gpus.tolist() == [0.0, 1.0]


def test_job_of_unknown_size_counts_one_gpu_for_the_others() -> None:
    table = table_of(make_job(1, priority=20, gang=make_gang(4, scope=GpuScope.SOCKET)), make_job(2, priority=10))

    assert np.isnan(table.gpus).tolist() == [True, False]
    assert table.ahead.gpus.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(make_job(1, held=True), id="held"),
        pytest.param(make_job(1, priority=0), id="held by priority"),
        pytest.param(make_job(1, priority=None), id="priority unknown"),
        pytest.param(make_job(1, gpus=0), id="no GPUs"),
        pytest.param(make_job(1, state=JobState.COMPLETING), id="not pending"),
    ],
)
def test_job_without_a_place_in_the_line_is_left_out(job: Job) -> None:
    table = table_of(job, make_job(2, priority=1))

    assert table.job_id.tolist() == [2]
    assert table.ahead.gpus.tolist() == [0.0]


@pytest.mark.parametrize(
    ("job", "eligible", "since_s"),
    [
        pytest.param(make_job(1, submitted_ago_s=HOUR_S), 1.0, HOUR_S, id="since submission"),
        pytest.param(make_job(1, eligible_time=TAKEN_AT - 60), 1.0, 60.0, id="since later"),
        pytest.param(make_job(1, eligible_time=TAKEN_AT + 60), 0.0, 0.0, id="not yet"),
        pytest.param(make_job(1, dependency="afterok:5"), 0.0, 0.0, id="dependent"),
    ],
)
def test_wait_counts_from_when_a_job_may_start(job: Job, eligible: float, since_s: float) -> None:
    table = table_of(job)

    assert (table.eligible[0], table.since_eligible_s[0]) == (eligible, since_s)
    assert table.since_submit_s.tolist() == [HOUR_S]


def test_sums_by_account_agree_with_counting_by_hand() -> None:
    jobs = [make_job(each, priority=each % 7 + 1, gpus=each % 3 + 1, account=f"a{each % 2}") for each in range(1, 40)]

    table = table_of(*jobs)

    line = sorted(jobs, key=lambda job: (-(job.priority or 0), job.job_id))
    by_hand = [
        sum(other.gang.gpu_count or 0 for other in line[:place] if other.account == job.account)
        for place, job in enumerate(line)
    ]
    assert table.ahead_in_account.gpus.tolist() == by_hand


def test_rows_can_be_taken() -> None:
    table = table_of(make_job(1, priority=20), make_job(2, priority=10, gpus=3))

    taken = table.take(np.array([1]))

    assert (taken.job_id.tolist(), taken.gpus.tolist(), taken.ahead.gpus.tolist()) == ([2], [3.0], [1.0])


def test_empty_queue_is_an_empty_table() -> None:
    assert len(table_of()) == 0
