"""The benchmark of a series of cycles: what it prints as Slurm, and its figures."""

import argparse

import pytest

from tools.bench.measuring import Stages
from tools.bench.series import CYCLE_S, Queue, measure
from tools.bench.synthetic import synthetic


@pytest.fixture
def queue() -> Queue:
    """A small cluster that changes."""
    return Queue(synthetic(60, 10, seed=3), changing=0.1, seed=1, stages=Stages())


def test_what_is_printed_is_read_back_as_it_was(queue: Queue) -> None:
    start = synthetic(60, 10, seed=3)

    read = queue.snapshot()

    assert [job.job_id for job in read.jobs] == [job.job_id for job in start.jobs]
    for job, was in zip(read.jobs, start.jobs, strict=True):
        assert (job.state, job.partitions, job.user) == (was.state, was.partitions, was.user)
        assert (job.gang.gpu_count, job.gang.gpu_type) == (was.gang.gpu_count, was.gang.gpu_type)
        assert (job.time_limit_s, job.hints.gpus, job.held) == (was.time_limit_s, was.hints.gpus, was.held)
    assert [node.gpus for node in read.nodes] == [node.gpus for node in start.nodes]


def test_few_jobs_change_in_a_minute(queue: Queue) -> None:
    before = queue.snapshot()

    queue.pass_time()
    after = queue.snapshot()

    assert after.taken_at == before.taken_at + CYCLE_S
    assert len(after.jobs) == len(before.jobs)
    fresh = after.jobs_by_id.keys() - before.jobs_by_id.keys()
    assert sum(after.jobs_by_id[job_id].is_pending for job_id in fresh) == 6
    assert len(fresh) == 7


def test_series_says_what_each_stage_costs() -> None:
    options = argparse.Namespace(jobs=60, nodes=10, cycles=3, changing=0.1, seed=1)

    figures = measure(options)

    assert figures["cycles"] == 2
    assert set(figures["mean_cpu_s"]) == {"decode", "forecast", "plan and guard", "journal"}
    assert all(seconds > 0.0 for seconds in figures["mean_cpu_s"].values())
    assert figures["resident_mib"]["peak"] >= figures["resident_mib"]["last"] > 0.0
