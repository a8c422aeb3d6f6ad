"""What of a snapshot enters the model of slurmctld, and what the model says that it leaves out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Unpack

import numpy as np
import pytest

from advisor.domain.actions import Lever
from advisor.domain.gang import GangRequest, GpuScope, ShareCount, SwitchRequest
from advisor.domain.job import Allocation, ArrayRecord, HetRecord, Job, JobState
from advisor.domain.node import Node
from advisor.domain.snapshot import Snapshot
from advisor.errors import SimulationError
from advisor.sim.live.continuation import Continuation
from advisor.sim.live.snapshot_model import SnapshotModel, model_of
from tests.backends import recorded
from tests.builders import (
    HOUR_S,
    TAKEN_AT,
    JobFields,
    make_cluster,
    make_gang,
    make_job,
    make_node,
    make_partition,
    make_snapshot,
    make_topology,
)


def held(model: SnapshotModel, job_id: int) -> dict[str, int]:
    """Return the GPUs that a running job holds by node."""
    mine = model.held_row == model.rows_by_id[job_id][0]
    names = [model.node_names[node] for node in model.held_node[mine].tolist()]
    return dict(zip(names, model.held_gpus[mine].tolist(), strict=True))


def test_jobs_become_rows_by_submit_time_with_what_they_asked() -> None:
    gang = make_gang(
        4, scope=GpuScope.NODE, nodes_min=2, nodes_max=2, cpus=32, memory_mib_per_node=80_000,
        switches=SwitchRequest(count=1, max_wait_s=600.0),
    )  # fmt: skip
    asking = make_job(2, gang=gang, time_limit_s=7200.0, time_min_s=3600.0, nice=10, priority=77)
    open_gang = make_job(3, gang=make_gang(12, nodes_max=None), submitted_ago_s=2 * HOUR_S, time_limit_s=None)

    model = model_of(make_cluster([asking, open_gang]))

    first, second = model.trace.jobs
    assert (first["job_id"], second["job_id"]) == (3, 2)
    assert (first["gpus"], first["nodes_max"], first["time_limit_s"]) == (12, 0, np.inf)
    assert (second["gpus"], second["nodes_min"], second["nodes_max"]) == (8, 2, 2)
    assert (second["cpus_per_gpu"], second["memory_mib"]) == (4, 80_000)
    assert (second["switches"], second["switches_wait_s"]) == (1, 600.0)
    assert (second["time_limit_s"], second["time_min_s"], second["nice"]) == (7200.0, 3600.0, 10)
    assert model.priority.tolist() == [1000.0, 77.0]
    assert model.left_out == ()


def test_nodes_stand_by_leaf_and_by_the_numbers_in_their_names() -> None:
    names = {"leaf10": ["n3", "n11"], "leaf2": ["n2", "n1"]}
    nodes = [make_node(name) for below in names.values() for name in below]

    model = model_of(make_snapshot([make_job()], nodes, topology=make_topology(names)))

    assert model.node_names == ("n1", "n2", "n3", "n11")
    assert model.leaf.tolist() == [0, 0, 1, 1]


def test_drained_node_starts_nothing_and_a_partition_without_gpus_has_no_rows() -> None:
    nodes = [make_node("n01"), make_node("n02", flags=("DRAIN",)), make_node("n03", gpus=0), make_node("c01", gpus=0)]
    partitions = [make_partition("gpu", ("n01", "n02", "n03")), make_partition("cpu", ("c01",))]

    model = model_of(make_snapshot([make_job()], nodes, partitions=partitions))

    assert model.node_names == ("n01", "n02", "n03")
    assert model.is_up.tolist() == [1, 0, 1]
    assert model.left_out == ("1 nodes are down, drained or reserved at first",)


def test_gpus_of_an_uneven_job_are_those_in_use_beside_the_certain_ones() -> None:
    one = make_job(1, gpus=3, running_on=["n01"])
    uneven = make_job(2, gang=make_gang(8), running_on=["n01", "n02"])
    even = make_job(3, gang=make_gang(4, scope=GpuScope.NODE, nodes_min=2), running_on=["n03", "n04"])
    nodes = [make_node("n01", used=8), make_node("n02", used=3), make_node("n03", used=4), make_node("n04", used=6)]

    model = model_of(make_snapshot([one, uneven, even], nodes))

    assert held(model, 1) == {"n01": 3}
    assert held(model, 2) == {"n01": 5, "n02": 3}
    assert held(model, 3) == {"n03": 4, "n04": 4}
    # What no job explains stays in use.
    assert model.gpus_taken.tolist() == [0, 0, 0, 2]
    assert model.left_out == (
        "1 running jobs hold different numbers of GPUs on their nodes: how many on which is inferred",
    )


MPS = (ShareCount(kind="mps", count=50),)
PENDING_LEFT_OUT = [
    pytest.param(make_job(7, gang=make_gang(0, shares=MPS)), "parts of GPUs", id="shares"),
    pytest.param(make_job(7, gang=make_gang(0, gpus_known=False)), "an unknown number of GPUs", id="unknown GPUs"),
    pytest.param(make_job(7, het=HetRecord(het_job_id=7, offset=0)), "heterogeneous", id="heterogeneous"),
    pytest.param(make_job(7, cron=True), "scrontab", id="scrontab"),
    pytest.param(make_job(7, reservation="maint"), "of a reservation", id="reservation"),
    pytest.param(make_job(7, held=True, priority=0), "that are held", id="held"),
    pytest.param(make_job(7, reason="QOSMaxGRESPerUser"), "such as a limit", id="limit"),
    pytest.param(make_job(7, priority=None), "unknown priority", id="unknown priority"),
    pytest.param(make_job(7, dependency="expand:1"), "dependency that the model does not know", id="dependency"),
    pytest.param(make_job(7, gang=make_gang(1, features="[a*2&b]")), "constraint that", id="constraint"),
]


@pytest.mark.parametrize(("job", "words"), PENDING_LEFT_OUT)
def test_pending_job_that_the_model_does_not_know_has_no_row_and_a_sentence(job: Job, words: str) -> None:
    model = model_of(make_cluster([make_job(1), job]))

    assert list(model.rows_by_id) == [1]
    (sentence,) = model.left_out
    assert sentence.startswith("1 pending ")
    assert words in sentence


RUNNING_LEFT_OUT = [
    pytest.param(make_job(7, gpus=4, running_on=["n01"], state=JobState.SUSPENDED), id="suspended"),
    pytest.param(make_job(7, gpus=4, running_on=["n01"], allocation=Allocation(nodes=("n01",))), id="unknown GPUs"),
]


@pytest.mark.parametrize("job", RUNNING_LEFT_OUT)
def test_what_a_running_job_without_a_row_holds_stays_taken(job: Job) -> None:
    nodes = [make_node("n01", used=4, cpus_used=20, memory_used_mib=1000), make_node("n02")]

    model = model_of(make_snapshot([make_job(1), job], nodes))

    assert list(model.rows_by_id) == [1]
    assert (model.gpus_taken.tolist(), model.cpus_taken.tolist()) == ([4, 0], [20, 0])
    assert model.memory_taken_mib.tolist() == [1000, 0]
    assert len(model.left_out) == 1
    assert "keep what they hold" in model.left_out[0]


def test_job_that_waits_for_one_without_a_row_has_none_and_the_jobs_behind_it_neither() -> None:
    held = make_job(1, held=True, priority=0)
    chain = [make_job(number, dependency=f"afterany:{number - 1}", priority=0) for number in (2, 3)]

    model = model_of(make_cluster([held, *chain, make_job(4, dependency="afterok:77", reason="Dependency")]))

    assert list(model.rows_by_id) == [4]
    assert "2 pending jobs that wait for a job without a row do not start" in model.left_out


def starts_after_s(jobs: Sequence[Job], nodes: Sequence[Node] | None = None, *, run_s: float = 600.0) -> list[float]:
    """Return when each row starts, in seconds from the snapshot; all run for `run_s`."""
    continuation = Continuation(model_of(make_snapshot(jobs, nodes)))
    run_time_s = np.full(continuation.n_jobs, run_s)
    course = continuation.run(continuation.workspace(), run_time_s, horizon_s=7200.0)
    assert continuation.model.left_out == ()
    return [float(start - TAKEN_AT) for start in course.start_time]


def running(job_id: int, node: str, gpus: int, left_s: float, **fields: Unpack[JobFields]) -> Job:
    """Build a job that ends in `left_s` if it runs for 600 s."""
    gang = make_gang(gpus, cpus=8)
    return make_job(job_id, gang=gang, running_on=[node], started_ago_s=600.0 - left_s, time_limit_s=900.0, **fields)


def test_tasks_of_an_array_start_up_to_its_limit() -> None:
    task = running(1, "n01", 1, 300.0, array=ArrayRecord(array_job_id=2, task_id=0))
    array = make_job(2, array=ArrayRecord(array_job_id=2, waiting="1-3", max_running=2), reason="JobArrayTaskLimit")

    starts = starts_after_s([task, array])

    assert len(starts) == 4
    assert starts[1] < 30.0
    assert 300.0 <= starts[2] < 360.0
    assert 600.0 <= starts[3] < 700.0


def test_job_starts_after_the_job_it_depends_on_has_ended() -> None:
    first = running(1, "n01", 1, 300.0)
    second = make_job(2, dependency="afterok:1(unfulfilled)", reason="Dependency", eligible_time=None, priority=0)
    third = make_job(3, dependency="singleton", reason="Dependency", eligible_time=None, name="job2", priority=0)

    starts = starts_after_s([first, second, third])

    assert 300.0 <= starts[1] < 400.0
    assert starts[1] + 600.0 <= starts[2] < starts[1] + 700.0


def test_job_with_a_begin_time_starts_then() -> None:
    starts = starts_after_s([make_job(1, eligible_time=TAKEN_AT + 500.0, reason="BeginTime", priority=0)])

    assert 500.0 <= starts[0] < 530.0


def test_job_without_gpus_waits_for_cpus_and_an_exclusive_job_for_a_whole_node() -> None:
    nodes = [make_node("n01", used=4, cpus=16, cpus_used=8)]
    holder = running(1, "n01", 4, 300.0)
    wide = make_job(2, gang=make_gang(0, cpus=12), submitted_ago_s=100.0)
    small = make_job(3, gang=make_gang(0, cpus=8), submitted_ago_s=90.0, time_limit_s=100.0)

    assert 300.0 <= starts_after_s([holder, wide], nodes)[1] < 400.0
    assert starts_after_s([holder, small], nodes)[1] < 30.0
    alone = make_job(4, gang=make_gang(1, exclusive=True), submitted_ago_s=80.0)
    assert 300.0 <= starts_after_s([holder, alone], nodes)[1] < 400.0


def test_exclusive_running_job_keeps_its_whole_node() -> None:
    gang = make_gang(1, exclusive=True, cpus=4)
    nodes = [make_node("n01", used=8, cpus_used=64)]
    holder = make_job(1, gang=gang, running_on=["n01"], started_ago_s=300.0, time_limit_s=900.0)
    others = [make_job(2), make_job(3, gang=make_gang(0, cpus=1))]

    starts = starts_after_s([holder, *others], nodes)

    assert all(300.0 <= start < 400.0 for start in starts[1:])


@pytest.mark.parametrize(
    "gang",
    [make_gang(1, features="fast"), make_gang(1, excluded_nodes=("n01",)), make_gang(1, required_nodes=("n02",))],
    ids=["features", "excluded", "required"],
)
def test_job_starts_on_the_node_that_it_can_use(gang: GangRequest) -> None:
    nodes = [make_node("n01"), make_node("n02", used=8, features=("fast",))]
    holder = running(1, "n02", 8, 300.0)

    starts = starts_after_s([holder, make_job(2, gang=gang), make_job(3)], nodes)

    assert 300.0 <= starts[1] < 400.0
    assert starts[2] < 30.0


def test_job_starts_on_the_nodes_of_its_partition() -> None:
    nodes = [make_node("n01"), make_node("n02", used=8, partitions=("long",))]
    partitions = [make_partition("gpu", ("n01",)), make_partition("long", ("n02",))]
    jobs = [running(1, "n02", 8, 300.0, partitions=("long",)), make_job(2, partitions=("long",)), make_job(3)]
    continuation = Continuation(model_of(make_snapshot(jobs, nodes, partitions=partitions)))

    course = continuation.run(continuation.workspace(), np.full(3, 600.0), horizon_s=7200.0)

    assert 300.0 <= course.start_time[1] - TAKEN_AT < 400.0
    assert course.start_time[2] - TAKEN_AT < 30.0


def test_unread_jobs_and_hidden_fields_have_their_sentences() -> None:
    snapshot = make_snapshot([make_job(1), make_job(2)])

    model = model_of(replace(snapshot, hidden_levers=(Lever.SWITCHES,), unread_jobs=(5, 6)))

    assert model.left_out == (
        "2 jobs could not be read",
        "the reader does not show the field switches: it counts as not set",
    )


def test_job_beyond_its_limit_ends_at_the_next_check_and_a_completing_one_at_once() -> None:
    late = make_job(1, gpus=8, running_on=["n01"], started_ago_s=7200.0, time_limit_s=3600.0)
    over = make_job(2, gpus=8, running_on=["n02"], state=JobState.COMPLETING)
    continuation = Continuation(model_of(make_cluster([late, over])))
    model = continuation.model

    run_time_s = np.where(model.is_ending, 0.0, 1e9)
    course = continuation.run(continuation.workspace(), run_time_s, horizon_s=3600.0)

    assert course.end_time[0] - TAKEN_AT == pytest.approx(30.0, abs=1.0)
    assert course.end_time[1] == TAKEN_AT


def test_snapshot_with_nothing_to_simulate_is_refused() -> None:
    with pytest.raises(SimulationError, match="no nodes with GPUs"):
        model_of(make_snapshot([make_job()], [make_node(gpus=0)]))
    with pytest.raises(SimulationError, match="no job with a known number of GPUs"):
        model_of(make_cluster([make_job(gang=make_gang(0, gpus_known=False))]))


RECORDED: dict[str, Callable[[], Snapshot]] = {
    "25.11 text": recorded.text_snapshot,
    **{f"{release} printed": partial(recorded.printed_snapshot, release) for release in recorded.LIVE_RELEASES},
}


@pytest.mark.parametrize("read", RECORDED.values(), ids=RECORDED)
def test_recorded_queue_goes_on_without_a_job_on_gpus_that_are_not_there(read: Callable[[], Snapshot]) -> None:
    shown = read()
    now = max(job.start_time or job.submit_time for job in shown.jobs if not job.is_pending) + 60.0
    snapshot = replace(shown, taken_at=now)

    continuation = Continuation(model_of(snapshot))
    workspace = continuation.workspace()
    course = continuation.run(workspace, continuation.model.trace.jobs["time_limit_s"], horizon_s=7 * 86_400.0)

    assert continuation.model.left_out
    assert (workspace.state.nodes["gpus_free"] >= 0).all()
    started = course.start_time[np.isnan(continuation.model.start_time)]
    assert np.isfinite(started).any()
    assert (started[np.isfinite(started)] >= now).all()
