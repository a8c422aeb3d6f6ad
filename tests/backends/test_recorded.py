"""Answers of real releases: what each reader makes of them, and that the readers agree."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from advisor.domain.gang import GangRequest, GpuCount, SwitchRequest
from advisor.domain.job import Allocation, ArrayRecord, HetRecord, Job, JobHints, JobState
from advisor.domain.node import GpuPool, Node
from advisor.domain.site import Partition
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import Switch, Topology, TopologyKind
from tests.backends import recorded, recorded_pyslurm

FIRST = tuple(f"n{number:02d}" for number in range(1, 5))
LAST = tuple(f"n{number:02d}" for number in range(5, 9))


@pytest.fixture(autouse=True)
def _recorded_in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def without_gpu_use(node: Node) -> Node:
    return replace(node, gpus=tuple(replace(pool, used=None) for pool in node.gpus))


def without_gpus_per_job(job: Job) -> Job:
    """What is left of a job where `--gpus`, and with it that there are none, cannot be seen."""
    if job.gang.per_node or job.gang.per_task or job.gang.per_socket:
        return job
    gang = replace(job.gang, per_job=(), gpus_known=False)
    return replace(job, gang=gang, allocation=job.allocation and replace(job.allocation, gpus=()))


# What a reader cannot see, by the reader: the only differences there may be, beside the default partition, which JSON
# shows from 26.05 on. Partitions of the others were recorded as JSON.
MISSING: Mapping[str, tuple[Callable[[Job], Job], Callable[[Node], Node]]] = {
    "text": (lambda job: job, lambda node: node),
    "json": (lambda job: job, lambda node: node),
    "pyslurm": (without_gpus_per_job, without_gpu_use),
}
READERS: Mapping[str, Callable[[], Snapshot]] = {
    "text": recorded.text_snapshot,
    "json": recorded.json_snapshot,
    "pyslurm": recorded_pyslurm.uncounted_snapshot,
}


@pytest.mark.parametrize("reader", READERS)
def test_readers_agree_but_for_what_they_cannot_see(reader: str) -> None:
    blind_job, blind_node = MISSING[reader]
    whole = recorded.json_snapshot()
    expected = replace(
        whole,
        source=reader,
        jobs=tuple(map(blind_job, whole.jobs)),
        nodes=tuple(map(blind_node, whole.nodes)),
        partitions=tuple(replace(each, is_default=reader == "pyslurm") for each in whole.partitions),
        hidden_levers=READERS[reader]().hidden_levers,
    )

    assert READERS[reader]() == expected


def without_excluded_nodes(job: Job) -> Job:
    return replace(job, gang=replace(job.gang, excluded_nodes=()))


def without_switches(job: Job) -> Job:
    return replace(job, gang=replace(job.gang, switches=None))


def without_exclusive(job: Job) -> Job:
    return replace(job, gang=replace(job.gang, exclusive=False))


# What squeue and the JSON of a live release cannot see, by the release.
MISSING_IN_TEXT: Mapping[str, Callable[[Job], Job]] = {"22.05": without_excluded_nodes}
MISSING_IN_JSON: Mapping[str, Callable[[Job], Job]] = {"22.05": without_switches, "26.05": without_exclusive}


def seen_through(snapshot: Snapshot, *blind: Callable[[Job], Job] | None) -> Snapshot:
    """Leave out of every job what a reader cannot see."""
    jobs = snapshot.jobs
    for leave_out in filter(None, blind):
        jobs = tuple(map(leave_out, jobs))
    return replace(snapshot, source="", jobs=jobs)


def without_default(snapshot: Snapshot) -> Snapshot:
    """Leave out which partition is the default, which JSON shows from 26.05 on."""
    return replace(snapshot, partitions=tuple(replace(each, is_default=False) for each in snapshot.partitions))


@pytest.mark.parametrize("release", recorded.LIVE_RELEASES)
def test_text_and_json_of_a_live_release_agree_but_for_what_they_cannot_see(release: str) -> None:
    text, dump = recorded.printed_snapshot(release), recorded.dumped_snapshot(release)

    in_json = seen_through(text, MISSING_IN_JSON.get(release))
    if release == "24.11":
        in_json = without_default(in_json)
    assert in_json == seen_through(dump, MISSING_IN_TEXT.get(release))
    assert len(text.jobs) > 45


@pytest.mark.parametrize("release", recorded.LIVE_RELEASES)
def test_partitions_of_a_live_release_show_job_factor_and_default(release: str) -> None:
    partitions = recorded.printed_snapshot(release).partitions

    assert [(each.name, each.priority_job_factor, each.is_default, each.over_subscribe) for each in partitions] == [
        ("debug", 10, False, "NO"),
        ("gpu", 1, True, "NO"),
    ]


@pytest.mark.parametrize("release", recorded.LIVE_RELEASES)
def test_squeue_and_scontrol_of_a_live_release_agree_but_for_what_squeue_cannot_see(release: str) -> None:
    by_squeue = recorded.printed_snapshot(release)
    by_scontrol = recorded.printed_snapshot(release, jobs_by_scontrol=True)

    assert seen_through(by_squeue) == seen_through(by_scontrol, MISSING_IN_TEXT.get(release))


@pytest.mark.parametrize("release", recorded.LIVE_RELEASES)
def test_requests_of_a_live_release_are_what_was_submitted(release: str) -> None:
    snapshot = recorded.printed_snapshot(release)
    gangs = {job.name: job.gang for job in snapshot.jobs}

    assert gangs["gpus-12"].per_job == (GpuCount(count=12),)
    assert gangs["gpus-typed-4"].per_job == (GpuCount(gpu_type="a100", count=4),)
    assert (gangs["per-node-8x2"].per_node, gangs["per-node-8x2"].nodes_min) == ((GpuCount(count=8),), 2)
    assert gangs["per-task"].per_task == (GpuCount(count=1),)
    assert gangs["per-socket"].per_socket == (GpuCount(count=2),)
    assert gangs["per-gpu-cpus-and-memory"].cpus_per_gpu == 2
    assert (gangs["range-per-node"].nodes_min, gangs["range-per-node"].nodes_max) == (2, 4)
    assert gangs["exclusive"].exclusive
    assert not gangs["gres-8"].exclusive
    assert gangs["switches"].switches == SwitchRequest(count=1, max_wait_s=1800.0)
    assert gangs["shard"].shares[0].count == 31
    assert not gangs["cpu-only"].wants_gpus
    assert gangs["name | with, odd: characters %j"].per_node == (GpuCount(count=2),)


@pytest.mark.parametrize("release", recorded.LIVE_RELEASES)
@pytest.mark.parametrize("read", [recorded.printed_snapshot, recorded.dumped_snapshot])
def test_time_min_of_a_live_release_is_what_was_submitted(release: str, read: Callable[[str], Snapshot]) -> None:
    jobs = {job.name: job for job in read(release).jobs}

    assert (jobs["time-min"].time_min_s, jobs["time-min"].time_limit_s) == (1800.0, 86_400.0)
    assert jobs["gres-8"].time_min_s is None


def test_every_job_of_the_recorded_queue_is_there() -> None:
    assert [job.job_id for job in recorded.text_snapshot().jobs] == list(range(4014, 4032))


def test_recorded_gang_with_switches_waits_for_resources() -> None:
    assert recorded.text_snapshot().jobs_by_id[4022] == Job(
        job_id=4022,
        state=JobState.PENDING,
        reason="Resources",
        name="vgg_ddp",
        user="root",
        partitions=("gpu",),
        gang=GangRequest(
            per_node=(GpuCount(count=8),),
            nodes_min=2,
            nodes_max=2,
            tasks=2,
            cpus=2,
            memory_mib_per_node=64000,
            switches=SwitchRequest(count=1, max_wait_s=1800.0),
        ),
        submit_time=1795220899.0,
        eligible_time=1795220899.0,
        time_limit_s=7200.0,
        priority=1,
        requeueable=True,
    )


def test_recorded_running_job_holds_typed_gpus() -> None:
    job = recorded.text_snapshot().jobs_by_id[4019]

    assert job.allocation == Allocation(nodes=("n06", "n07"), gpus=(GpuCount(gpu_type="a100", count=8),))
    assert (job.start_time, job.end_time) == (1795220900.0, 1795393700.0)
    assert job.hints == JobHints(model="bert", unknown=("elastic=2-8",))


@pytest.mark.parametrize(
    ("job_id", "array"),
    [
        (4021, ArrayRecord(array_job_id=4021, waiting="3-6", max_running=2)),
        (4024, ArrayRecord(array_job_id=4021, task_id=1)),
        (4022, None),
    ],
    ids=["waiting", "started", "no array"],
)
def test_recorded_array_records_are_told_apart(job_id: int, array: ArrayRecord | None) -> None:
    assert recorded.text_snapshot().jobs_by_id[job_id].array == array


def test_recorded_peculiarities_are_kept() -> None:
    jobs = recorded.text_snapshot().jobs_by_id

    assert jobs[4023].nice == 10
    assert (jobs[4023].gang.nodes_min, jobs[4023].gang.nodes_max) == (1, 2)
    assert jobs[4026].held
    assert jobs[4027].dependency == "afterok:1(failed)"
    assert (jobs[4028].start_time, jobs[4028].time_limit_s) == (1795224500.0, None)
    assert not jobs[4029].gang.wants_gpus
    assert jobs[4031].het == HetRecord(het_job_id=4030, offset=1)


def test_recorded_nodes_partitions_and_topology_are_whole() -> None:
    snapshot = recorded.text_snapshot()

    assert snapshot.nodes[5].gpus == (GpuPool(gpu_type="a100", total=8, used=7),)
    assert (snapshot.nodes[7].state, snapshot.nodes[7].flags) == ("IDLE", ("DRAIN",))
    assert snapshot.nodes[7].reason == "ECC error gpu3"
    assert snapshot.partitions == (Partition(name="gpu", nodes=FIRST + LAST),)
    assert snapshot.topology == Topology(
        kind=TopologyKind.TREE,
        switches=(
            Switch(name="leaf1", level=0, nodes=FIRST),
            Switch(name="leaf2", level=0, nodes=LAST),
            Switch(name="spine", level=1, nodes=FIRST + LAST),
        ),
    )


def test_recorded_configuration_is_whole() -> None:
    config = recorded.text_snapshot().config

    assert (config.cluster, config.slurm_version, config.traits.first_version) == ("t25", "25.11.7", (25, 11, 0))
    assert config.scheduler_parameters == {"bf_interval": "5", "max_switch_wait": "86400"}
    assert config.select_parameters == ("CR_CORE",)
    assert config.priority_max_age_s == 604800.0
    assert config.private_data == ()
