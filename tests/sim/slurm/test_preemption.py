"""Preemption in the model of slurmctld, by the tiers of partitions and by QOS."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.run_outcome import End, Run
from advisor.sim.slurm.queue_tables import PartitionTable, QosTable
from advisor.sim.traces.trace import Trace
from tests.sim.building import FIRST_COME, make_trace, run_of, starts_and_ends

BY_TIER = replace(FIRST_COME, preempt_type="partition_prio", preempt_mode="requeue")
BY_QOS = replace(FIRST_COME, preempt_type="qos", preempt_mode="requeue")
LOW, HIGH = PartitionTable(name="low", default=True), PartitionTable(name="high", priority_tier=2)
SMALL = {"gpus": 4, "run_time_s": 1000}
LARGE = {"gpus": 8, "run_time_s": 1000}


def cluster_of(slurm: SlurmParameters = BY_TIER, **more: Any) -> Cluster:
    return Cluster(nodes=(NodeGroup(count=2, gpus=8, leaf=2),), slurm=slurm, **{"partitions": (LOW, HIGH), **more})


def trace_of(jobs: Sequence[Mapping[str, Any]]) -> Trace:
    """Return a trace with the partitions, or QOS, low (0) and high (1)."""
    return replace(make_trace(jobs), partitions=("low", "high"), qos=("low", "high"))


def runs_of(run: Run) -> list[list[tuple[float, float]]]:
    """Return when each run of each job began and ended."""
    runs: list[list[tuple[float, float]]] = [[] for _ in run.outcomes]
    for segment in sorted(run.segments.tolist(), key=lambda segment: segment[4]):
        runs[segment[0]].append((segment[4], segment[5]))
    return runs


def test_a_running_job_of_a_lower_tier_goes_back_to_the_line_and_runs_again() -> None:
    jobs = [LARGE, LARGE, {**LARGE, "partition": 1, "submit_time": 100}]

    run = run_of(trace_of(jobs), cluster_of(), "slurm")

    low, other, high = runs_of(run)
    assert high == [(100, 1100)]
    assert other == [(0, 1000)]
    assert low == [(0, 100), (1000, 1900)]
    assert run.outcomes["preemptions"].tolist() == [1, 0, 0]


def test_a_cancelled_job_ends() -> None:
    jobs = [LARGE, LARGE, {**LARGE, "partition": 1, "submit_time": 100}]

    run = run_of(trace_of(jobs), cluster_of(replace(BY_TIER, preempt_mode="cancel")), "slurm")

    assert runs_of(run) == [[(0, 100)], [(0, 1000)], [(100, 1100)]]
    assert run.outcomes["end"].tolist() == [End.PREEMPTED, End.FINISHED, End.FINISHED]


def test_as_few_jobs_give_way_as_are_needed() -> None:
    # The first candidate does not make room for four GPUs, the second does.
    jobs = [{**SMALL, "gpus": 1}, {**LARGE, "gpus": 7}, LARGE, {**SMALL, "partition": 1, "submit_time": 100}]

    run = run_of(trace_of(jobs), cluster_of(), "slurm")

    assert run.outcomes["preemptions"].tolist() == [0, 1, 0, 0]


def test_a_job_gives_way_to_no_job_of_its_own_tier_or_a_lower_one() -> None:
    jobs = [{**LARGE, "partition": 1}, {**LARGE, "partition": 1}, {**LARGE, "partition": 1, "submit_time": 100}, LARGE]

    run = run_of(trace_of(jobs), cluster_of(), "slurm")

    assert run.outcomes["preemptions"].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("slurm", "low"),
    [
        pytest.param(replace(BY_TIER, preempt_type="none"), LOW, id="no type"),
        pytest.param(replace(BY_TIER, preempt_mode="off"), LOW, id="no mode"),
        pytest.param(BY_TIER, replace(LOW, preempt_mode="off"), id="not of this partition"),
    ],
)
def test_no_job_gives_way_where_nothing_says_so(slurm: SlurmParameters, low: PartitionTable) -> None:
    jobs = [LARGE, LARGE, {**LARGE, "partition": 1, "submit_time": 100}]

    run = run_of(trace_of(jobs), cluster_of(slurm, partitions=(low, HIGH)), "slurm")

    assert [start for start, _ in starts_and_ends(run)] == [0, 0, 1000]


def test_a_job_that_has_just_begun_is_exempt() -> None:
    jobs = [LARGE, {**LARGE, "submit_time": 50}, {**LARGE, "partition": 1, "submit_time": 100}]

    run = run_of(trace_of(jobs), cluster_of(replace(BY_TIER, preempt_exempt_s=80)), "slurm")

    assert run.outcomes["preemptions"].tolist() == [1, 0, 0]


def test_a_job_in_its_time_of_grace_runs_on() -> None:
    jobs = [LARGE, LARGE, {**LARGE, "partition": 1, "submit_time": 100}]

    run = run_of(trace_of(jobs), cluster_of(partitions=(replace(LOW, grace_s=30), HIGH)), "slurm")

    low, _, high = runs_of(run)
    assert [low[0], high[0][0]] == [(0, 130), 130]


def test_a_qos_preempts_those_that_it_lists() -> None:
    qos = (QosTable(name="low"), QosTable(name="high", preempts=("low",)))
    jobs = [LARGE, {**LARGE, "qos": 1}, {**LARGE, "qos": 1, "submit_time": 100}, {**LARGE, "submit_time": 200}]

    run = run_of(trace_of(jobs), cluster_of(BY_QOS, partitions=(), qos=qos), "slurm")

    assert run.outcomes["preemptions"].tolist() == [1, 0, 0, 0]
    assert runs_of(run)[2] == [(100, 1100)]


def test_backfill_preempts_for_jobs_behind_one_that_waits() -> None:
    # The first of the high tier can never have both nodes while one is full of its own tier.
    jobs = [
        {**LARGE, "partition": 1},
        LARGE,
        {"gpus": 16, "nodes_min": 2, "nodes_max": 2, "run_time_s": 10, "partition": 1, "submit_time": 100},
        {**LARGE, "run_time_s": 200, "time_limit_s": 300, "partition": 1, "submit_time": 101},
    ]

    run = run_of(trace_of(jobs), cluster_of(), "slurm")

    _, low, wide, behind = runs_of(run)
    assert wide == [(1000, 1010)]
    # Backfill stops the low one at 120 s; the main pass, which the wide one holds up, does not start the other.
    assert behind == [(150, 350)]
    assert low[0] == (0, 120)
