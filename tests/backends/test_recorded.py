"""Answers of real releases: what each reader makes of them, and that the readers agree."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from advisor.backends.pyslurm_decode import Raw
from advisor.backends.scontrol_text import partitions
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Lever
from advisor.domain.gang import GangRequest, GpuCount, SwitchRequest
from advisor.domain.job import Allocation, ArrayRecord, HetRecord, Job, JobHints, JobState
from advisor.domain.node import GpuPool, Node
from advisor.domain.plan import Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import Switch, Topology, TopologyKind
from advisor.errors import DecodeError
from advisor.planning.levers import missing_by_lever
from advisor.settings import PlanningSettings
from tests.backends import recorded, recorded_pyslurm
from tests.examples import examples

FIRST = tuple(f"n{number:02d}" for number in range(1, 5))
LAST = tuple(f"n{number:02d}" for number in range(5, 9))


def without_gpu_use(node: Node) -> Node:
    return replace(node, gpus=tuple(replace(pool, used=None) for pool in node.gpus))


def without_gpus_per_job(job: Job) -> Job:
    """What is left of a job where `--gpus`, and with it that there are none, cannot be seen."""
    if job.gang.per_node or job.gang.per_task or job.gang.per_socket:
        return job
    gang = replace(job.gang, per_job=(), gpus_known=False)
    return replace(job, gang=gang, allocation=job.allocation and replace(job.allocation, gpus=()))


def test_readers_agree_but_for_what_pyslurm_cannot_see() -> None:
    whole, ours = recorded.text_snapshot(), recorded_pyslurm.uncounted_snapshot()

    expected = replace(
        whole,
        source="pyslurm",
        jobs=tuple(map(without_gpus_per_job, whole.jobs)),
        nodes=tuple(map(without_gpu_use, whole.nodes)),
        partitions=tuple(replace(each, is_default=True) for each in whole.partitions),
        hidden_levers=ours.hidden_levers,
    )
    assert ours == expected


def without_excluded_nodes(job: Job) -> Job:
    return replace(job, gang=replace(job.gang, excluded_nodes=()))


# What squeue of a live release cannot see, by the release.
MISSING_IN_TEXT: Mapping[str, Callable[[Job], Job]] = {"22.05": without_excluded_nodes}


def seen_through(snapshot: Snapshot, *blind: Callable[[Job], Job] | None) -> Snapshot:
    """Leave out of every job what a reader cannot see."""
    jobs = snapshot.jobs
    for leave_out in filter(None, blind):
        jobs = tuple(map(leave_out, jobs))
    return replace(snapshot, source="", jobs=jobs)


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
    assert len(by_squeue.jobs) > 45


@pytest.mark.parametrize("release", recorded.LIVE_RELEASES)
def test_sinfo_and_scontrol_of_a_live_release_agree_on_partitions(release: str) -> None:
    by_scontrol = partitions((recorded.RECORDED / release / "partition.txt").read_text())

    assert recorded.printed_snapshot(release).partitions == by_scontrol


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
def test_time_min_of_a_live_release_is_what_was_submitted(release: str) -> None:
    jobs = {job.name: job for job in recorded.printed_snapshot(release).jobs}

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


def test_recorded_nodes_and_topology_are_whole() -> None:
    snapshot = recorded.text_snapshot()

    assert snapshot.nodes[5].gpus == (GpuPool(gpu_type="a100", total=8, used=7),)
    assert (snapshot.nodes[7].state, snapshot.nodes[7].flags) == ("IDLE", ("DRAIN",))
    assert snapshot.nodes[7].reason == "ECC error gpu3"
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


# What happened between the two readings: this job started on n03.
STARTED_BETWEEN = 105
# Not yet looked at when pyslurm read, so that Slurm gave no reason.
NEW = (100, 101, 102)
# Read without SLURM_BITSTR_LEN=0, which the child is given.
CUT_LIST = 70
HOUR_S = 3600.0
# Beyond the work of the queue, so that readers are compared over many lifts.
PLANNING = PlanningSettings(lift_work_s=30 * 24 * HOUR_S, lift_user_ratio=1.0)


def advice(snapshot: Snapshot) -> CycleRecord:
    """Plan for a queue as it stands an hour later, when its jobs are no longer too young, with a gang near its head."""
    near = {19: 99, 17: 98}
    jobs = tuple(replace(job, priority=near.get(job.job_id, job.priority)) for job in snapshot.jobs)
    return Cycle(planning=PLANNING).judge(
        replace(snapshot, jobs=jobs, taken_at=recorded_pyslurm.text_snapshot().taken_at + HOUR_S)
    )


def same_moment(node: Node) -> Node:
    """Return a node without what the job that started between the readings changed."""
    flags = tuple(flag for flag in node.flags if flag != "PLANNED")
    if node.name != "n03":
        return replace(node, flags=flags)
    return replace(node, flags=flags, cpus_used=0, gpus=tuple(replace(pool, used=0) for pool in node.gpus))


def test_jobs_are_as_text_shows_them_but_for_the_blind_spots() -> None:
    ours, text = recorded_pyslurm.counted_snapshot(), recorded_pyslurm.text_snapshot()

    for job in text.jobs:
        ours_of_it = recorded_pyslurm.blind(ours.jobs_by_id[job.job_id])
        if job.job_id == STARTED_BETWEEN:
            assert (ours_of_it.state, job.state) == (JobState.PENDING, JobState.RUNNING)
            continue
        expected = recorded_pyslurm.blind(job)
        if job.job_id in NEW:
            expected = replace(expected, reason="None")
        assert ours_of_it == expected


def test_nodes_partitions_and_topology_are_as_text_shows_them() -> None:
    ours, text = recorded_pyslurm.counted_snapshot(), recorded_pyslurm.text_snapshot()

    assert list(map(same_moment, ours.nodes)) == list(map(same_moment, text.nodes))
    assert (ours.partitions, ours.topology) == (text.partitions, text.topology)
    assert [pool.used for pool in ours.nodes[7].gpus] == [0]


def test_tasks_with_a_record_of_their_own_are_seen_where_text_merges_them() -> None:
    ours, text = recorded_pyslurm.counted_snapshot(), recorded_pyslurm.text_snapshot()

    own = {job_id: ours.jobs_by_id[job_id].array for job_id in ours.jobs_by_id.keys() - text.jobs_by_id.keys()}

    assert own == {
        103: ArrayRecord(array_job_id=72, task_id=3),
        104: ArrayRecord(array_job_id=72, task_id=5),
    }
    assert ours.splits_told and not text.splits_told
    for job in text.jobs:
        if job.array is not None and job.job_id not in (72, CUT_LIST):
            assert ours.jobs_by_id[job.job_id].array == job.array


def test_blind_spots_are_those_that_the_queue_shows() -> None:
    ours, text = recorded_pyslurm.counted_snapshot(), recorded_pyslurm.text_snapshot()

    typed, beside, sockets, cpus = 15, 97, 23, 24
    assert ours.jobs_by_id[typed].gang.per_job == (GpuCount(count=8),)
    assert text.jobs_by_id[typed].gang.per_job == (GpuCount(gpu_type="a100", count=8),)
    assert not ours.jobs_by_id[beside].gang.per_job and text.jobs_by_id[beside].gang.per_job
    assert not ours.jobs_by_id[sockets].gang.gpus_known and text.jobs_by_id[sockets].gang.per_socket
    assert ours.jobs_by_id[cpus].unseen == ("cpus_per_gpu",) and text.jobs_by_id[cpus].gang.cpus_per_gpu == 4


def at_one_moment(text: Snapshot, ours: Snapshot) -> Snapshot:
    """Return what text would have shown when pyslurm read: before a job started, and before new ones had a reason."""
    started = {STARTED_BETWEEN: ours.jobs_by_id[STARTED_BETWEEN]}
    jobs = [started.get(job.job_id, job) for job in text.jobs]
    return replace(text, nodes=ours.nodes, jobs=tuple(jobs))


def test_advice_is_that_of_text_or_says_why_not() -> None:
    read = recorded_pyslurm.counted_snapshot()
    ours, text = advice(read), advice(at_one_moment(recorded_pyslurm.text_snapshot(), read))

    by_text = {change.job_id: change.action for change in text.recommendations}
    by_pyslurm = {change.job_id: change.action for change in ours.recommendations}

    # The jobs that pyslurm cannot read are not changed, and count in the facts of the others.
    assert len(by_pyslurm) > 10
    assert by_pyslurm == {job_id: action for job_id, action in by_text.items() if job_id not in ours.left_alone}


def test_resizing_is_said_to_be_impossible() -> None:
    missing = missing_by_lever(recorded_pyslurm.counted_snapshot())

    assert missing[Lever.GPU_COUNT] == "the pyslurm reader does not show what jobs hold there; use --source text"


ADVISED = (16, 17)
# A dependent, a held and an opted-out job, and one that would be moved if it had no time limit.
OTHERS = (12, 14, 19, 38, 40, 66, 66, 74)
NAMES = tuple(recorded_pyslurm.counted_records()["job"][0].values)


def changes(snapshot: Snapshot) -> Mapping[int, list[Recommendation]]:
    """Map jobs to the changes that are recommended for them."""
    found: dict[int, list[Recommendation]] = {}
    for change in advice(snapshot).recommendations:
        found.setdefault(change.job_id, []).append(change)
    return found


BY_ALL_FIELDS = changes(recorded_pyslurm.counted_snapshot())


def dropped(raw: Raw, names: frozenset[str]) -> Raw:
    """Return a record some values of which could not be read."""
    kept = {name: value for name, value in raw.values.items() if name not in names}
    return Raw(values=kept, unseen=tuple(sorted(names)))


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(300))
@example({66: frozenset(("time_limit",))})
@given(
    st.dictionaries(
        st.sampled_from((*ADVISED, *ADVISED, *OTHERS)),
        st.frozensets(st.sampled_from(NAMES), min_size=1, max_size=3),
        min_size=1,
        max_size=4,
    )
)
def test_advice_on_a_job_of_which_fields_were_not_read_is_none_or_the_same(
    names_by_job: dict[int, frozenset[str]],
) -> None:
    records = recorded_pyslurm.counted_records()
    jobs = tuple(dropped(raw, names_by_job.get(raw.values["id"], frozenset())) for raw in records["job"])
    try:
        snapshot = recorded_pyslurm.counted_snapshot({**records, "job": jobs})
    except DecodeError:
        # No job without it: text is read in place of the whole answer.
        assert any(names & {"id", "state", "submit_time"} for names in names_by_job.values())
        return

    by_job = changes(snapshot)

    for job_id in names_by_job:
        assert by_job.get(job_id, []) in ([], BY_ALL_FIELDS.get(job_id, []))
