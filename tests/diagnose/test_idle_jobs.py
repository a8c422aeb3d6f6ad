"""Which running jobs hold idle GPUs, by measurements: who holds a GPU, and for how long it did nothing."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.diagnose.idle_jobs import Indices, idle_look, jobs_to_map
from advisor.domain.idle_gpus import MEASURED_S, GpuReading, IdleJob, IdleLook, UtilisationSettings
from advisor.domain.job import Job, JobState
from advisor.domain.snapshot import Snapshot
from tests.builders import HOUR_S, TAKEN_AT, make_job, make_nodes, make_partition, make_snapshot
from tests.examples import examples

NODES = ("n1", "n2", "n3")
SITE = UtilisationSettings()
BY_LABEL = UtilisationSettings(job_label="hpc_job")


def queue(*jobs: Job) -> Snapshot:
    return make_snapshot(jobs=jobs, nodes=make_nodes(NODES, jobs), partitions=[make_partition(nodes=NODES)])


def gpus(node: str, idle_h: Mapping[int, float], *, job_id: int | None = None) -> list[GpuReading]:
    return [GpuReading(node=node, index=index, idle_s=hours * HOUR_S, job_id=job_id) for index, hours in idle_h.items()]


def running(job_id: int, count: int, *nodes: str, hours: float = 9.0) -> Job:
    return make_job(job_id, gpus=count, running_on=nodes, started_ago_s=hours * HOUR_S, submitted_ago_s=20 * HOUR_S)


def look(snapshot: Snapshot, readings: list[GpuReading], indices: Indices | None = None) -> IdleLook:
    return idle_look(snapshot, readings, indices or {}, SITE)


def test_a_job_that_holds_whole_nodes_is_named_with_the_time_of_the_last_gpu_that_fell_idle() -> None:
    readings = gpus("n1", dict.fromkeys(range(8), 7.0)) + gpus("n2", dict.fromkeys(range(6), 5.0) | {6: 0.0, 7: 1.9})

    [job] = look(queue(running(1, 16, "n1", "n2")), readings).jobs

    assert job == IdleJob(job_id=1, gpus=16, idle_gpus=14, since_time=TAKEN_AT - 5 * HOUR_S)
    assert job.gpu_hours(TAKEN_AT) == 70.0


def test_gpus_that_were_idle_before_the_job_count_from_its_start() -> None:
    [job] = look(queue(running(1, 8, "n1", hours=3.0)), gpus("n1", dict.fromkeys(range(8), 24.0))).jobs

    assert (job.since_time, job.is_at_least) == (TAKEN_AT - 3 * HOUR_S, False)


def test_a_job_idle_for_longer_than_is_measured_was_so_at_least() -> None:
    [job] = look(queue(running(1, 8, "n1", hours=19.0 + 20)), gpus("n1", dict.fromkeys(range(8), 24.0))).jobs

    assert (job.since_time, job.is_at_least) == (TAKEN_AT - MEASURED_S, True)


@pytest.mark.parametrize(
    ("job", "readings"),
    [
        pytest.param(running(1, 8, "n1"), [], id="not measured"),
        pytest.param(running(1, 8, "n1"), gpus("n1", dict.fromkeys(range(8), 1.9)), id="idle for too short a time"),
        pytest.param(running(1, 8, "n1", hours=1.9), gpus("n1", {0: 9.0}), id="begun too short a time ago"),
        pytest.param(running(1, 8, "n1"), gpus("n2", {0: 9.0}), id="the GPUs of another node"),
        pytest.param(replace(running(1, 8, "n1"), start_time=None), gpus("n1", {0: 9.0}), id="no start is known"),
        pytest.param(replace(running(1, 8, "n1"), state=JobState.SUSPENDED), gpus("n1", {0: 9.0}), id="suspended"),
        pytest.param(make_job(1, gpus=8), gpus("n1", {0: 9.0}), id="pending"),
    ],
)
def test_a_job_of_which_nothing_is_certain_is_not_named(job: Job, readings: list[GpuReading]) -> None:
    assert look(queue(job), readings).jobs == ()


def test_on_a_shared_node_the_indices_decide() -> None:
    seen = queue(running(1, 2, "n1"), running(2, 1, "n1"), running(3, 8, "n2"), running(4, 1, "n3"))
    readings = gpus("n1", {0: 0.0, 1: 8.0, 2: 9.0, 5: 9.0}) + gpus("n2", dict.fromkeys(range(8), 0.0))

    asked = jobs_to_map(seen, readings, SITE)
    found = look(seen, readings, {1: {"n1": frozenset({0, 1})}, 2: {"n1": frozenset({2})}})
    unknown = look(seen, readings, {1: {"n1": frozenset({0, 1})}})

    assert [job.job_id for job in asked] == [1, 2]
    assert [(job.job_id, job.idle_gpus, job.gpus) for job in found.jobs] == [(2, 1, 1), (1, 1, 2)]
    assert [job.job_id for job in unknown.jobs] == [1] and unknown.unmapped == (2,)
    assert (found.gpus, found.measured) == (24, 12)


def test_a_job_alone_on_a_part_of_a_node_has_no_more_than_its_own_gpus() -> None:
    seen = queue(running(1, 2, "n1"))

    assert look(seen, gpus("n1", {5: 9.0})).jobs == ()
    assert jobs_to_map(seen, gpus("n1", {5: 9.0}), SITE) == seen.jobs


def test_a_node_with_more_measured_gpus_than_slurm_knows_is_mapped_by_indices_alone() -> None:
    seen = queue(running(1, 8, "n1"))
    readings = gpus("n1", dict.fromkeys(range(8), 0.0) | {8: 9.0})

    assert look(seen, readings).unmapped == (1,)
    assert look(seen, readings, {1: {"n1": frozenset(range(8))}}).jobs == ()


def test_measurements_that_name_jobs_decide_alone_and_only_on_the_nodes_of_the_job() -> None:
    seen = queue(running(1, 2, "n1"), running(2, 8, "n2"))
    readings = [
        *gpus("n1", {0: 8.0, 1: 8.0}, job_id=1),
        *gpus("n3", {0: 9.0}, job_id=2),
        *gpus("n3", {1: 9.0}, job_id=77),
        *gpus("n2", {0: 9.0}),
    ]

    found = idle_look(seen, readings, {}, BY_LABEL)

    assert [(job.job_id, job.idle_gpus) for job in found.jobs] == [(1, 2)]
    assert (found.gpus, found.measured, found.unmapped) == (10, 2, ())


@st.composite
def _looks(draw: st.DrawFn) -> tuple[Snapshot, list[GpuReading], dict[int, dict[str, frozenset[int]]]]:
    """Draw jobs on some GPUs of some nodes, and measurements of some of them, of none, and of unknown nodes."""
    free = {name: list(range(8)) for name in NODES}
    jobs, indices = [], {}
    for job_id in range(1, draw(st.integers(1, 5)) + 1):
        nodes = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=2, unique=True))
        count = draw(st.integers(1, 8))
        if any(len(free[name]) < count for name in nodes):
            continue
        indices[job_id] = {name: frozenset(free[name][:count]) for name in nodes}
        for name in nodes:
            free[name] = free[name][count:]
        jobs.append(running(job_id, count * len(nodes), *sorted(nodes), hours=draw(st.floats(0.0, 60.0))))
    places = st.tuples(st.sampled_from((*NODES, "elsewhere")), st.integers(0, 7))
    measured = draw(st.dictionaries(places, st.floats(0.0, MEASURED_S), max_size=24))
    readings = [GpuReading(node=node, index=index, idle_s=idle_s) for (node, index), idle_s in measured.items()]
    return queue(*jobs), readings, indices


@given(_looks(), st.floats(900.0, MEASURED_S))
@settings(max_examples=examples(200), deadline=None)
def test_only_measured_gpus_of_a_job_count_and_none_before_it_began(
    drawn: tuple[Snapshot, list[GpuReading], dict[int, dict[str, frozenset[int]]]], after_s: float
) -> None:
    seen, readings, indices = drawn
    site = UtilisationSettings(idle_after_s=after_s)

    found = idle_look(seen, readings, indices, site)
    backwards = idle_look(seen, readings[::-1], indices, site)
    busy = idle_look(seen, [replace(each, idle_s=0.0) for each in readings], indices, site)

    assert found == backwards and busy.jobs == () and found.unmapped == ()
    for job in found.jobs:
        held = seen.jobs_by_id[job.job_id]
        own = [each for each in readings if each.index in indices[job.job_id].get(each.node, ())]
        idle = [each for each in own if each.idle_s >= after_s]
        assert 1 <= job.idle_gpus <= len(idle) <= job.gpus
        assert held.start_time is not None
        assert max(held.start_time, TAKEN_AT - MEASURED_S) <= job.since_time <= TAKEN_AT - after_s
    assert {job.job_id for job in found.jobs} == {
        job.job_id
        for job in seen.jobs
        if job.start_time is not None
        and TAKEN_AT - job.start_time >= after_s
        and any(each.idle_s >= after_s and each.index in indices[job.job_id].get(each.node, ()) for each in readings)
    }
