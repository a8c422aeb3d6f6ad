"""When a gang fits by the time limits of the jobs that run."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain.gang import GangRequest, GpuCount, GpuScope
from advisor.domain.job import Allocation, Job, JobState
from advisor.domain.node import GpuPool
from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import node_table
from advisor.planning.earliest import earliest_by_limits
from tests.builders import HOUR_S, TAKEN_AT, make_config, make_gang, make_job, make_node, make_snapshot
from tests.examples import examples
from tests.strategies import snapshots


def hours_until(snapshot: Snapshot, job_id: int = 1) -> float | None:
    """How long a job must wait at most, in hours."""
    time = earliest_by_limits(snapshot, node_table(snapshot), snapshot.jobs_by_id[job_id])
    return None if time is None else (time - TAKEN_AT) / HOUR_S


def holder(job_id: int, node: str, gpus: int, ends_in_h: float | None) -> Job:
    """A running job that ends by its limit in some hours, or at a time nobody knows."""
    job = make_job(job_id, gpus=gpus, running_on=[node])
    return replace(job, end_time=None if ends_in_h is None else TAKEN_AT + ends_in_h * HOUR_S)


HOLDERS = [holder(11, "n01", 4, 1), holder(12, "n01", 4, 4), holder(13, "n02", 8, 2), holder(14, "n03", 8, 3)]


@pytest.mark.parametrize(
    ("gang", "hours"),
    [
        pytest.param(make_gang(8), 0.0, id="fits now on n04"),
        pytest.param(make_gang(9), 1.0, id="first end suffices"),
        pytest.param(make_gang(12), 1.0, id="just suffices"),
        pytest.param(make_gang(13), 2.0, id="second end"),
        pytest.param(make_gang(16, scope=GpuScope.JOB, nodes_max=2), 2.0, id="two largest nodes"),
        pytest.param(make_gang(8, required_nodes=("n01",), nodes_max=1), 4.0, id="all of one node"),
        pytest.param(make_gang(8, excluded_nodes=("n04",), nodes_max=1), 2.0, id="other than the idle node"),
        pytest.param(make_gang(8, scope=GpuScope.NODE, nodes_min=4, nodes_max=4), 4.0, id="last end"),
        pytest.param(make_gang(33), None, id="never"),
    ],
)
def test_gang_fits_when_enough_jobs_have_ended(gang: GangRequest, hours: float | None) -> None:
    assert hours_until(make_snapshot([make_job(1, gang=gang), *HOLDERS])) == hours


def test_jobs_past_their_limit_are_as_good_as_gone() -> None:
    jobs = [make_job(1, gang=make_gang(8, nodes_max=1)), holder(2, "n1", 8, -1)]

    assert hours_until(make_snapshot(jobs, [make_node("n1", used=8)])) == 0.0


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(holder(2, "n1", 8, None), id="no end known"),
        pytest.param(replace(holder(2, "n1", 8, 1), state=JobState.SUSPENDED), id="suspended"),
        pytest.param(replace(holder(2, "n1", 8, 1), allocation=None), id="no allocation known"),
        pytest.param(holder(2, "elsewhere", 8, 1), id="on a node nobody knows"),
    ],
)
def test_job_whose_end_cannot_be_known_frees_nothing(held: Job) -> None:
    jobs = [make_job(1, gang=make_gang(8)), held]

    assert hours_until(make_snapshot(jobs, [make_node("n1", used=8)])) is None


def test_gpus_of_several_nodes_are_taken_from_the_request_or_spread_evenly() -> None:
    spread = replace(make_job(2, gpus=5, running_on=["n1", "n2"]), end_time=TAKEN_AT + HOUR_S)
    other = [holder(3, "n1", 5, 9), holder(4, "n2", 5, 9)]
    nodes = [make_node("n1", used=8), make_node("n2", used=7)]
    exact = replace(
        spread, gang=make_gang(2, scope=GpuScope.NODE, nodes_min=2), allocation=Allocation(nodes=("n1", "n2"))
    )

    def until(gpus: int, node: str, running: Job) -> float | None:
        job = make_job(1, gang=make_gang(gpus, required_nodes=(node,), nodes_max=1))
        return hours_until(make_snapshot([job, running, *other], nodes))

    # Three of the five on n1, two on n2, beside one that is idle there.
    assert [until(3, "n1", spread), until(4, "n1", spread)] == [1.0, 9.0]
    assert [until(3, "n2", spread), until(4, "n2", spread)] == [1.0, 9.0]
    assert [until(2, "n1", exact), until(3, "n1", exact)] == [1.0, 9.0]


def test_types_are_told_apart_where_a_node_has_several() -> None:
    pools = (GpuPool(gpu_type="a100", total=4, used=4), GpuPool(gpu_type="v100", total=4, used=4))
    node = replace(make_node("n1"), gpus=pools)

    def until(gpu_type: str | None, held: GpuCount) -> float | None:
        running = replace(holder(2, "n1", 0, 1), gang=make_gang(0), allocation=Allocation(nodes=("n1",), gpus=(held,)))
        job = make_job(1, gang=make_gang(2, gpu_type=gpu_type))
        return hours_until(make_snapshot([job, running, holder(3, "n1", 0, 5)], [node]))

    assert until("a100", GpuCount(gpu_type="a100", count=2)) == 1.0
    assert until("v100", GpuCount(gpu_type="a100", count=2)) == 5.0
    # A job of any type is not known to free either before the node is empty.
    assert until(None, GpuCount(count=2)) == 5.0


def test_untyped_holdings_are_of_the_only_type_there_is() -> None:
    nodes = [make_node("n1", used=8, gpu_type="a100")]
    jobs = [make_job(1, gang=make_gang(2, gpu_type="a100")), holder(2, "n1", 2, 1), holder(3, "n1", 6, 5)]

    assert hours_until(make_snapshot(jobs, nodes)) == 1.0


def test_cpus_and_memory_come_free_too() -> None:
    gang = make_gang(1, cpus=8, memory_mib_per_node=1000)
    running = replace(holder(2, "n1", 1, 1), gang=gang)
    last = replace(holder(3, "n1", 1, 5), gang=make_gang(1, cpus=1))
    node = make_node("n1", used=2, cpus=9, cpus_used=9, memory_mib=1500, memory_used_mib=1500)

    def until(cpus: int, memory_mib: int) -> float | None:
        job = make_job(1, gang=make_gang(1, cpus=cpus, memory_mib_per_node=memory_mib))
        return hours_until(make_snapshot([job, running, last], [node]))

    assert (until(8, 1000), until(9, 1000), until(8, 1001), until(10, 1)) == (1.0, 5.0, 5.0, None)


def test_node_that_its_last_known_job_leaves_counts_as_empty_unless_jobs_are_hidden() -> None:
    gang = make_gang(8, exclusive=True)
    jobs = [make_job(1, gang=gang), replace(holder(2, "n1", 8, 1), allocation=Allocation(nodes=("n1",)))]
    nodes = [make_node("n1", used=8, cpus_used=64)]

    assert hours_until(make_snapshot(jobs, nodes)) == 1.0
    assert hours_until(make_snapshot(jobs, nodes, config=make_config(private_data=("jobs",)))) is None


@settings(max_examples=examples(50), deadline=None)
@given(snapshots(), st.floats(0, 3 * HOUR_S))
def test_gang_never_fits_later_when_a_job_ends_sooner(snapshot: Snapshot, sooner_s: float) -> None:
    jobs = [replace(job, end_time=None if job.end_time is None else job.end_time - sooner_s) for job in snapshot.jobs]
    earlier = replace(snapshot, jobs=tuple(jobs))

    for job in snapshot.jobs:
        before, after = (earliest_by_limits(one, node_table(one), job) for one in (snapshot, earlier))

        assert (before is None) == (after is None)
        assert before is None or (after is not None and snapshot.taken_at <= after <= before)
