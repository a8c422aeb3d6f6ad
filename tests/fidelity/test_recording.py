"""Recordings of a real slurmctld: their files, its log, and the recorded sites."""

import itertools
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from tools.fidelity.recording import (
    DependencyType,
    Pass,
    RecordedJob,
    RecordedNodeState,
    Recording,
    RecordingError,
    Scheduler,
    WorkloadKind,
    read_log,
    read_recording,
    write_recording,
)
from tools.fidelity.workloads import LONG, SHORT, draw_site_workload, draw_workload

FOLDER = Path(__file__).parents[1] / "recorded/fidelity"
RECORDED = [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in sorted(FOLDER.glob("*/*.json"))]


@pytest.fixture(params=RECORDED)
def recording(request: pytest.FixtureRequest) -> Recording:
    return read_recording(request.param)


def test_recordings_are_there() -> None:
    assert len(RECORDED) >= 3


def test_recording_is_of_the_workload_that_its_seed_draws(recording: Recording) -> None:
    seed, kind = recording.workload.seed, recording.workload.kind
    size = SHORT if len(recording.jobs) == SHORT.jobs else LONG
    drawn = draw_workload(seed, size) if kind is WorkloadKind.PLAIN else draw_site_workload(seed, kind)

    assert recording.workload == drawn
    assert list(dict.fromkeys(job.request for job in recording.jobs)) == list(drawn.jobs)


def test_jobs_start_after_submission_and_only_the_overrunning_ones_meet_their_limit(recording: Recording) -> None:
    ended_by_limit = [job for job in recording.jobs if job.state not in {"COMPLETED", "PREEMPTED"}]

    assert all(job.submit_time <= job.start_time < job.end_time for job in recording.jobs)
    assert {job.state for job in ended_by_limit} <= {"TIMEOUT"}
    if recording.workload.kind is not WorkloadKind.PREEMPTING_QOS:
        # There the check for overdue jobs also ends jobs whose time of grace is over.
        assert [job for job in recording.jobs if job.request.sleep_s > job.request.time_limit_s] == ended_by_limit


def test_no_node_ever_gives_out_more_gpus_than_it_has(recording: Recording) -> None:
    moments = sorted(job.start_time for job in recording.jobs)

    for node, moment in itertools.product(itertools.chain(*recording.leaves), moments):
        there = [job for job in recording.jobs if node in job.nodes and job.start_time <= moment < job.end_time]
        least = sum(job.request.gpus // len(job.nodes) for job in there if job.request.nodes is not None)
        assert least <= recording.gpus_per_node


def test_queue_is_deep_and_both_schedulers_start_jobs(recording: Recording) -> None:
    starters = [job.started_by for job in recording.jobs]
    is_plain = recording.workload.kind is WorkloadKind.PLAIN
    least = 10 if is_plain else 2
    least_delay_s = 20 if is_plain and len(recording.jobs) > SHORT.jobs else 10
    if recording.stated.bf_min_age_reserve_s:
        # Where young jobs hold no nodes, the main scheduler leaves few to backfill.
        least = 5

    assert min(starters.count(scheduler) for scheduler in Scheduler) >= least
    assert sum(job.start_time - job.submit_time for job in recording.jobs) / len(recording.jobs) > least_delay_s


def test_priority_at_submission_is_the_sum_of_its_factors(recording: Recording) -> None:
    known = [job for job in recording.jobs if job.priority]
    # slurmctld computes none for a job that is not eligible yet.
    assert len(known) >= (len(recording.jobs) if recording.workload.kind is not WorkloadKind.ARRAYS else 20)
    for job in known:
        assert job.priority is not None
        factors = (job.priority.age, job.priority.fair_share, job.priority.job_size, job.priority.partition)
        parts = sum(factors) + job.priority.qos - job.priority.nice
        # slurmctld cuts the fraction off the sum, sprio rounds each factor.
        assert job.priority.total == pytest.approx(parts, abs=2)
        assert job.priority.nice == job.request.nice


def test_written_recording_reads_back_equal(recording: Recording, tmp_path: Path) -> None:
    write_recording(replace(recording, controller_start_time=-2.0), tmp_path / "copy.json")

    assert read_recording(tmp_path / "copy.json") == replace(recording, controller_start_time=-2.0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("{}", "not a recording: release: Field required", id="empty"),
        pytest.param("nonsense", "not a recording", id="not json"),
    ],
)
def test_file_that_is_no_recording_is_named_with_its_fault(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "odd.json").write_text(text)

    with pytest.raises(RecordingError, match=rf"odd\.json: {complaint}"):
        read_recording(tmp_path / "odd.json")


def test_missing_file_is_one_line() -> None:
    with pytest.raises(RecordingError, match=r"^/nowhere: No such file or directory$"):
        read_recording(Path("/nowhere"))


LINES = """\
[2026-03-01T10:00:00.100] slurmctld version 22.05.8 started on cluster live
[2026-03-01T10:00:01.000] _slurm_rpc_submit_batch_job: JobId=1 InitPrio=7 usec=300
[2026-03-01T10:00:09.000] slurmctld version 22.05.8 started on cluster live
[2026-03-01T10:00:10.250] _slurm_rpc_submit_batch_job: JobId=1 InitPrio=2066 usec=388
[2026-03-01T10:00:10.300] _slurm_rpc_submit_batch_job: JobId=2 InitPrio=2010 usec=388
[2026-03-01T10:00:12.000] debug:  sched: Running job scheduler for default depth.
[2026-03-01T10:00:12.001] sched: Allocate JobId=1 NodeList=n01 #CPUs=8 Partition=gpu
[2026-03-01T10:00:20.000] sched/backfill: _attempt_backfill: beginning
[2026-03-01T10:00:20.001] sched/backfill: _start_job: Started JobId=2 in gpu on n02
a line without a time
[2026-03-01T10:00:31.500] _job_complete: JobId=1 WEXITSTATUS 0
[2026-03-01T10:00:31.501] _job_complete: JobId=1 done
[2026-03-01T10:01:09.900] debug2: priority/multifactor: decay_apply_weighted_factors: priority for job 1 is now 5
[2026-03-01T10:01:09.901] debug2: priority/multifactor: decay_apply_weighted_factors: priority for job 2 is now 6
[2026-03-01T10:02:09.900] debug2: priority/multifactor: decay_apply_weighted_factors: priority for job 2 is now 8
""".splitlines()


def moment(text: str) -> float:
    return datetime.fromisoformat(f"2026-03-01T10:{text}").astimezone().timestamp()


def test_log_counts_from_the_last_start_of_slurmctld() -> None:
    log = read_log(LINES)

    assert log.start_time == moment("00:09.000")


def test_start_of_a_job_names_the_scheduler() -> None:
    log = read_log(LINES)

    assert log.starts == {
        1: Pass(scheduler=Scheduler.MAIN, time=moment("00:12.001")),
        2: Pass(scheduler=Scheduler.BACKFILL, time=moment("00:20.001")),
    }


def test_submissions_ends_and_passes_keep_their_milliseconds() -> None:
    log = read_log(LINES)

    assert log.submits == {1: moment("00:10.250"), 2: moment("00:10.300")}
    assert log.ends == {1: moment("00:31.501")}
    assert log.passes == [
        Pass(scheduler=Scheduler.MAIN, time=moment("00:12.000")),
        Pass(scheduler=Scheduler.BACKFILL, time=moment("00:20.000")),
    ]


def test_start_by_backfill_without_a_line_of_its_own_is_seen_by_its_credential() -> None:
    log = read_log(
        [
            "[2026-03-01T10:00:11.695] debug:  slurm_cred_create: creating credential for JobId=9 SLUID=sFM5M83MFNAZ00",
            "[2026-03-01T10:00:12.001] sched: Allocate JobId=8 NodeList=n01 #CPUs=8 Partition=gpu",
            "[2026-03-01T10:00:12.002] debug:  slurm_cred_create: creating credential for JobId=8 SLUID=sFM5M83MDH0Z00",
            "[2026-03-01T10:00:14.714] debug:  slurm_cred_create: creating credential for JobId=9 SLUID=sFM5M83MFNAZ00",
        ]
    )

    assert log.starts == {
        9: Pass(scheduler=Scheduler.BACKFILL, time=moment("00:11.695")),
        8: Pass(scheduler=Scheduler.MAIN, time=moment("00:12.001")),
    }


def test_task_of_an_array_counts_under_its_own_id() -> None:
    log = read_log(
        [
            "[2026-03-01T10:00:12.001] sched: Allocate JobId=5_0(8) NodeList=n01 #CPUs=1 Partition=gpu",
            "[2026-03-01T10:00:12.002] sched/backfill: _start_job: Started JobId=5_1(5) in gpu on n01",
            "[2026-03-01T10:00:13.001] _job_complete: JobId=5_0(8) done",
        ]
    )

    assert log.starts == {
        8: Pass(scheduler=Scheduler.MAIN, time=moment("00:12.001")),
        5: Pass(scheduler=Scheduler.BACKFILL, time=moment("00:12.002")),
    }
    assert log.ends == {8: moment("00:13.001")}


def test_priorities_computed_together_are_one_recalculation() -> None:
    log = read_log(LINES)

    assert log.recalculations == [moment("01:09.900"), moment("02:09.900")]


def recorded(kind: WorkloadKind) -> Recording:
    return read_recording(FOLDER / f"22.05/{kind}1.json")


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
