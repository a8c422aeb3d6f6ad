"""pyslurm and text on one recorded queue: the same jobs and the same advice, but for what pyslurm does not show."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from advisor.backends.pyslurm_decode import Raw
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Lever
from advisor.domain.gang import GpuCount
from advisor.domain.job import ArrayRecord, JobState
from advisor.domain.node import Node
from advisor.domain.plan import Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.errors import DecodeError
from advisor.planning.levers import missing_by_lever
from advisor.settings import PlanningSettings
from tests.backends import recorded_pyslurm
from tests.examples import examples

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
