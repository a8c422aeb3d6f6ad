"""Workloads that are recorded, of drawn requests and of whole sites."""

from dataclasses import replace

import pytest

from tools.fidelity.live import GPUS_PER_NODE, NODE_COUNT, dependency_options, request_options
from tools.fidelity.recording import Dependency, DependencyType, JobRequest, RecordedNodeState, WorkloadKind
from tools.fidelity.workloads import (
    LONG,
    QOS,
    SHORT,
    SHORT_MAX_TIME_S,
    SHORT_PARTITION,
    Size,
    draw_site_workload,
    draw_workload,
)

SIZES = [pytest.param(LONG, id="long"), pytest.param(SHORT, id="short")]


def job(*, gpus: int = 4, nodes: int | None = 1, switches_wait_s: float = 0.0) -> JobRequest:
    return JobRequest(
        name="a",
        user="games",
        submit_time=0.0,
        gpus=gpus,
        nodes=nodes,
        time_limit_s=120.0,
        sleep_s=20.0,
        switches_wait_s=switches_wait_s,
    )


@pytest.mark.parametrize("size", SIZES)
def test_seed_decides_the_workload(size: Size) -> None:
    first, again, other = draw_workload(1, size), draw_workload(1, size), draw_workload(2, size)

    assert first == again
    assert first.jobs != other.jobs


@pytest.mark.parametrize("seed", range(1, 6))
def test_long_workload_has_all_that_is_compared(seed: int) -> None:
    workload = draw_workload(seed, LONG)

    assert len(workload.jobs) >= 60
    assert len({job.user for job in workload.jobs}) == 3
    assert {1, 16} <= {job.gpus for job in workload.jobs}
    assert any(job.switches_wait_s and job.nodes == 2 for job in workload.jobs)
    assert any(job.nodes is None for job in workload.jobs)
    assert {60.0, 300.0} <= {job.time_limit_s for job in workload.jobs}
    assert workload.changes


@pytest.mark.parametrize(
    ("size", "overrunning"), [pytest.param(LONG, 1, id="long"), pytest.param(SHORT, 0, id="short")]
)
def test_no_job_comes_near_its_limit_but_those_that_are_meant_to(size: Size, overrunning: int) -> None:
    jobs = draw_workload(3, size).jobs

    assert sum(job.sleep_s > job.time_limit_s for job in jobs) == overrunning
    assert all(job.sleep_s + 5.0 < job.time_limit_s for job in jobs if job.sleep_s < job.time_limit_s)


@pytest.mark.parametrize("size", SIZES)
def test_nice_changes_after_the_submission_of_its_job(size: Size) -> None:
    workload = draw_workload(4, size)
    submit_times = {job.name: job.submit_time for job in workload.jobs}

    assert all(change.time > submit_times[change.name] for change in workload.changes)


@pytest.mark.parametrize(
    ("request_", "options"),
    [
        pytest.param(job(gpus=4), {"--nodes=1", "--gres=gpu:4", "--ntasks-per-node=4"}, id="one node"),
        pytest.param(job(gpus=16, nodes=2), {"--nodes=2", "--gres=gpu:8", "--ntasks-per-node=8"}, id="two nodes"),
        pytest.param(job(gpus=12, nodes=None), {"--gpus=12", "--ntasks=12"}, id="open node count"),
        pytest.param(job(gpus=8, nodes=2, switches_wait_s=60.0), {"--gres=gpu:4", "--switches=1@1"}, id="switches"),
    ],
)
def test_request_is_spelled_for_sbatch(request_: JobRequest, options: set[str]) -> None:
    spelled = set(request_options(request_))

    assert options <= spelled
    assert "--time=2" in spelled


KINDS = [kind for kind in WorkloadKind if kind is not WorkloadKind.PLAIN]
SEEDS = range(1, 6)
JOB = JobRequest(name="a", user="games", submit_time=0.0, gpus=4, nodes=1, time_limit_s=120.0, sleep_s=20.0)


@pytest.mark.parametrize("kind", KINDS)
def test_seed_and_kind_decide_the_workload(kind: WorkloadKind) -> None:
    first, again, other = (draw_site_workload(seed, kind) for seed in (1, 1, 2))

    assert first == again
    assert first.jobs != other.jobs
    assert first.kind is kind


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_workload_has_about_its_number_of_jobs_with_names_that_differ(seed: int, kind: WorkloadKind) -> None:
    jobs = draw_site_workload(seed, kind).jobs
    least, most = (600, 600) if kind is WorkloadKind.SATURATED else (50, 85)

    assert least <= sum(max(1, job.array_size) for job in jobs) <= most
    assert len({job.name for job in jobs}) == len(jobs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_changes_name_single_jobs_after_their_submission(seed: int, kind: WorkloadKind) -> None:
    workload = draw_site_workload(seed, kind)
    jobs = {job.name: job for job in workload.jobs}

    assert all(change.time > jobs[change.name].submit_time for change in workload.changes)
    assert all(not jobs[change.name].array_size for change in workload.changes)


@pytest.mark.parametrize("seed", SEEDS)
def test_saturated_workload_is_more_than_the_cluster_can_run_while_jobs_arrive(seed: int) -> None:
    jobs = draw_site_workload(seed, WorkloadKind.SATURATED).jobs
    gpu_s = sum(job.gpus * min(job.sleep_s, job.time_limit_s) for job in jobs)

    assert gpu_s > 1.3 * NODE_COUNT * GPUS_PER_NODE * max(job.submit_time for job in jobs)


@pytest.mark.parametrize("seed", SEEDS)
def test_jobs_of_the_short_partition_fit_its_time_limit(seed: int) -> None:
    jobs = draw_site_workload(seed, WorkloadKind.PARTITIONS).jobs
    short = [job for job in jobs if job.partition == SHORT_PARTITION]

    assert 10 < len(short) < 50
    assert all(job.sleep_s + 5.0 < job.time_limit_s <= SHORT_MAX_TIME_S for job in short)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_qos_could_run_each_of_its_jobs_alone_but_not_all_at_once(seed: int) -> None:
    jobs = draw_site_workload(seed, WorkloadKind.QOS).jobs

    for qos in QOS:
        limits = [limit for limit in (qos.max_gpus_per_user, qos.group_gpus) if limit is not None]
        gpus = [job.gpus for job in jobs if job.qos == qos.name]
        assert gpus
        assert all(max(gpus) <= limit < sum(gpus) for limit in limits)


@pytest.mark.parametrize("seed", SEEDS)
def test_jobs_depend_on_jobs_submitted_before_them(seed: int) -> None:
    jobs = draw_site_workload(seed, WorkloadKind.ARRAYS).jobs
    ranks = {job.name: rank for rank, job in enumerate(jobs)}
    waiting = [(rank, job.dependency) for rank, job in enumerate(jobs) if job.dependency]

    assert {dependency.type for _, dependency in waiting} == set(DependencyType)
    assert all(ranks[name] < rank for rank, dependency in waiting for name in dependency.names)
    assert any(job.begin_delay_s for job in jobs)
    assert any(0 < job.array_limit < job.array_size for job in jobs)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_job_waits_for_the_success_of_one_that_its_limit_ends(seed: int) -> None:
    jobs = draw_site_workload(seed, WorkloadKind.ARRAYS).jobs
    ended = {job.name for job in jobs if job.sleep_s > job.time_limit_s}
    waited_for: dict[DependencyType, set[str]] = {type_: set() for type_ in DependencyType}
    for job in jobs:
        if job.dependency:
            waited_for[job.dependency.type].update(job.dependency.names)

    assert len(ended) == 1
    assert ended <= waited_for[DependencyType.AFTER_ANY]
    assert not ended & waited_for[DependencyType.AFTER_OK]


@pytest.mark.parametrize("seed", SEEDS)
def test_singleton_jobs_share_user_and_name(seed: int) -> None:
    jobs = draw_site_workload(seed, WorkloadKind.ARRAYS).jobs
    singletons = [job for job in jobs if job.dependency and job.dependency.type is DependencyType.SINGLETON]

    assert len(singletons) >= 3
    assert len({(job.user, job.shared_name) for job in singletons}) == 1
    assert singletons[0].shared_name


def test_some_nodes_are_drained_throughout_and_one_comes_back() -> None:
    events = draw_site_workload(1, WorkloadKind.DRAINED).node_events
    drained = {event.node for event in events if event.state is RecordedNodeState.DRAIN}
    resumed = {event.node for event in events if event.state is RecordedNodeState.RESUME}

    assert resumed < drained
    assert all(event.time == 0.0 for event in events if event.node not in resumed)


@pytest.mark.parametrize("seed", SEEDS)
def test_cpu_jobs_fit_a_node_beside_jobs_with_gpus(seed: int) -> None:
    jobs = draw_site_workload(seed, WorkloadKind.CPU).jobs

    assert any(not job.gpus for job in jobs)
    assert any(job.exclusive for job in jobs)
    for job in jobs:
        assert job.nodes is not None
        assert max(job.cpus, job.cpus_per_gpu * job.gpus // job.nodes) <= 16
        assert 0 < job.memory_mib <= 48000


@pytest.mark.parametrize(
    ("request_", "options"),
    [
        pytest.param(replace(JOB, partition="short"), {"--partition=short"}, id="partition"),
        pytest.param(replace(JOB, qos="capped"), {"--qos=capped"}, id="QOS"),
        pytest.param(replace(JOB, array_size=4, array_limit=2), {"--array=0-3%2"}, id="array with a limit"),
        pytest.param(replace(JOB, array_size=4), {"--array=0-3"}, id="array without a limit"),
        pytest.param(replace(JOB, begin_delay_s=20.0), {"--begin=now+20"}, id="begin"),
        pytest.param(replace(JOB, shared_name="nightly"), {"--job-name=nightly"}, id="shared name"),
        pytest.param(
            replace(JOB, gpus=0, cpus=8, memory_mib=2000, exclusive=True),
            {"--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=8", "--mem=2000", "--exclusive"},
            id="CPUs alone",
        ),
        pytest.param(
            replace(JOB, cpus_per_gpu=2), {"--gres=gpu:4", "--ntasks-per-node=1", "--cpus-per-gpu=2"}, id="CPUs per GPU"
        ),
    ],
)
def test_request_of_a_site_is_spelled_for_sbatch(request_: JobRequest, options: set[str]) -> None:
    assert options <= set(request_options(request_))


def test_job_without_gpus_asks_for_none() -> None:
    assert not [option for option in request_options(replace(JOB, gpus=0, cpus=2)) if "gpu" in option]


@pytest.mark.parametrize(
    ("dependency", "options"),
    [
        pytest.param(None, [], id="none"),
        pytest.param(Dependency(type=DependencyType.SINGLETON), ["--dependency=singleton"], id="singleton"),
        pytest.param(
            Dependency(type=DependencyType.AFTER_OK, names=("a", "b")), ["--dependency=afterok:7:9"], id="two jobs"
        ),
    ],
)
def test_dependency_names_job_ids(dependency: Dependency | None, options: list[str]) -> None:
    assert dependency_options(replace(JOB, dependency=dependency), {"a": 7, "b": 9}) == options
