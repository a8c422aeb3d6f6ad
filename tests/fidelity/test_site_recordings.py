"""What slurmctld 22.05 kept to in the recordings of partitions, QOS, arrays, drained nodes, CPUs and memory."""

import itertools
from collections import Counter
from pathlib import Path

import pytest

from tools.fidelity.recording import (
    DependencyType,
    RecordedJob,
    RecordedNodeState,
    Recording,
    WorkloadKind,
    read_recording,
)

FOLDER = Path(__file__).parents[1] / "recorded/fidelity/22.05"


def recorded(kind: WorkloadKind) -> Recording:
    return read_recording(FOLDER / f"{kind}1.json")


def running_at(recording: Recording, moment: float) -> list[RecordedJob]:
    """List the jobs that run right after a moment."""
    return [job for job in recording.jobs if job.start_time <= moment < job.end_time]


def starts(recording: Recording) -> list[float]:
    return sorted(job.start_time for job in recording.jobs)


def test_every_job_runs_in_its_partition_and_within_the_limit_of_it() -> None:
    recording = recorded(WorkloadKind.PARTITIONS)
    partitions = {partition.name: partition for partition in recording.partitions}

    assert {partitions[name].priority_tier for name in ("long", "short")} == {1, 2}
    for job in recording.jobs:
        partition = partitions[job.request.partition]
        assert set(job.nodes) <= set(partition.nodes)
        assert job.request.time_limit_s <= (partition.max_time_s or float("inf"))


def test_partition_factor_counts_against_the_largest_of_all_partitions() -> None:
    recording = recorded(WorkloadKind.PARTITIONS)
    factors = {partition.name: partition.priority_job_factor for partition in recording.partitions}
    weight = float(recording.parameters["PriorityWeightPartition"])

    assert weight > 0
    for job in recording.jobs:
        assert job.priority is not None
        expected = weight * factors[job.request.partition] / max(factors.values())
        assert job.priority.partition == pytest.approx(expected, abs=1)


def test_limits_of_each_qos_hold_at_every_start_and_are_met() -> None:
    recording = recorded(WorkloadKind.QOS)

    for qos in recording.qos:
        per_user, per_group, jobs_per_user = 0, 0, 0
        for moment in starts(recording):
            jobs = [job for job in running_at(recording, moment) if job.request.qos == qos.name]
            gpus: Counter[str] = Counter()
            for job in jobs:
                gpus[job.request.user] += job.request.gpus
            per_user = max(per_user, *gpus.values(), 0)
            per_group = max(per_group, gpus.total())
            jobs_per_user = max(jobs_per_user, *Counter(job.request.user for job in jobs).values(), 0)
        assert per_user == (qos.max_gpus_per_user or per_user)
        assert per_group == (qos.group_gpus or per_group)
        assert jobs_per_user == (qos.max_jobs_per_user or jobs_per_user)


def test_no_more_tasks_of_an_array_run_than_its_limit() -> None:
    recording = recorded(WorkloadKind.ARRAYS)
    arrays = [request for request in recording.workload.jobs if request.array_size]

    assert arrays
    for request in arrays:
        tasks = [job for job in recording.jobs if job.request == request]
        counts = [sum(job.request == request for job in running_at(recording, moment)) for moment in starts(recording)]
        assert sorted(job.array_task or 0 for job in tasks) == list(range(request.array_size))
        assert max(counts) <= (request.array_limit or request.array_size)


def test_no_job_starts_before_what_it_waits_for_has_ended() -> None:
    recording = recorded(WorkloadKind.ARRAYS)

    for job in recording.jobs:
        dependency = job.request.dependency
        if dependency is None:
            assert job.start_time >= job.submit_time + job.request.begin_delay_s - 1
        elif dependency.type is not DependencyType.SINGLETON:
            awaited = [other for other in recording.jobs if other.request.name in dependency.names]
            assert awaited
            assert all(other.end_time <= job.start_time for other in awaited)


def test_singletons_run_one_at_a_time() -> None:
    recording = recorded(WorkloadKind.ARRAYS)
    singletons = sorted((job for job in recording.jobs if job.request.shared_name), key=lambda job: job.start_time)

    assert len(singletons) >= 3
    assert all(first.end_time <= second.start_time for first, second in itertools.pairwise(singletons))


def test_nothing_starts_on_a_node_while_it_is_drained() -> None:
    recording = recorded(WorkloadKind.DRAINED)
    resumed = {
        event.node: event.time for event in recording.node_events_made if event.state is RecordedNodeState.RESUME
    }

    assert [event.node for event in recording.node_events_made] == [e.node for e in recording.workload.node_events]
    assert resumed
    for node, moment in resumed.items():
        assert any(job.start_time > moment for job in recording.jobs if node in job.nodes)
    for event in recording.node_events_made:
        if event.state is RecordedNodeState.DRAIN:
            until = resumed.get(event.node, float("inf"))
            there = [job for job in recording.jobs if event.node in job.nodes]
            assert not [job for job in there if event.time < job.start_time < until]


def test_cpus_and_memory_of_each_node_suffice_and_are_needed() -> None:
    recording = recorded(WorkloadKind.CPU)
    fullest_cpus, fullest_memory = 0, 0
    assert recording.memory_mib_per_node is not None

    for moment in starts(recording):
        for node in {node for leaf in recording.leaves for node in leaf}:
            there = [job for job in running_at(recording, moment) if node in job.nodes]
            cpus = [job.request.cpus or job.request.cpus_per_gpu * job.request.gpus // len(job.nodes) for job in there]
            memory = [job.request.memory_mib for job in there]
            fullest_cpus, fullest_memory = max(fullest_cpus, sum(cpus)), max(fullest_memory, sum(memory))
            assert len(there) == 1 or not any(job.request.exclusive for job in there)
    assert fullest_cpus == recording.cpus_per_node
    assert 0.9 * recording.memory_mib_per_node <= fullest_memory <= recording.memory_mib_per_node
