"""When pending jobs start by time limits, node by node, and when a gang fits by those of the jobs that run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain.gang import GangRequest, GpuCount, GpuScope, SwitchRequest
from advisor.domain.job import Allocation, Job, JobState
from advisor.domain.node import GpuPool, Node
from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import node_table
from advisor.planning.case import Case
from advisor.planning.earliest import earliest_by_limits
from advisor.planning.timetable import Slot, Timetable
from tests.builders import (
    DAY_S,
    HOUR_S,
    TAKEN_AT,
    make_config,
    make_gang,
    make_holders,
    make_job,
    make_node,
    make_snapshot,
    make_topology,
)
from tests.examples import examples
from tests.golden import random_queues
from tests.strategies import snapshots


def timetable(nodes: Sequence[Node], *, left_s: float = 2 * HOUR_S, horizon_s: float = 30 * DAY_S) -> Timetable:
    """The GPUs in use come free in `left_s`."""
    return Case(snapshot=make_snapshot(make_holders(nodes, left_s=left_s), nodes)).timetable(horizon_s)


def starts(table: Timetable, *jobs: Job) -> list[float | None]:
    """Add jobs in order, and return when they start, in seconds."""
    starts_s: list[float | None] = []
    for job in jobs:
        slot = table.slot(job, float("inf") if job.time_limit_s is None else job.time_limit_s)
        starts_s.append(None if slot is None else slot.start_s)
        if slot is not None:
            table.add(slot)
    return starts_s


HALVES = (make_node("n01", 4, used=2), make_node("n02", 4, used=2))
ONE_NODE, ANY_NODES = make_gang(4, nodes_max=1), make_gang(4)


def test_gpus_of_one_node_count_only_together() -> None:
    assert starts(timetable(HALVES), make_job(1, gang=ONE_NODE)) == [2 * HOUR_S]
    assert starts(timetable(HALVES), make_job(1, gang=ANY_NODES)) == [0.0]


def test_jobs_start_at_the_very_ends_of_those_ahead() -> None:
    full = [make_node("n01", 4, used=4)]
    jobs = [make_job(number, gpus=4, time_limit_s=901.0) for number in (1, 2, 3)]

    assert starts(timetable(full, left_s=7207.0), *jobs) == [7207.0, 8108.0, 9009.0]


@pytest.mark.parametrize(("limit_s", "start_s"), [(2 * HOUR_S, 0.0), (3 * HOUR_S, 12 * HOUR_S)])
def test_job_behind_starts_before_a_reservation_only_if_it_ends_before(limit_s: float, start_s: float) -> None:
    whole = make_job(1, gang=make_gang(8), time_limit_s=10 * HOUR_S)

    assert starts(timetable(HALVES), whole, make_job(2, gpus=2, time_limit_s=limit_s)) == [2 * HOUR_S, start_s]


def test_job_behind_uses_what_a_reservation_leaves() -> None:
    three = make_job(1, gang=make_gang(3, nodes_max=1), time_limit_s=10 * HOUR_S)

    # On its node one GPU is left from then on, and on the other node two are idle now.
    assert starts(timetable(HALVES), three, *[make_job(n, gpus=1) for n in (2, 3, 4)]) == [2 * HOUR_S, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("gang", "start_s"),
    [
        (make_gang(1, cpus=64, nodes_max=1), 2 * HOUR_S),
        (make_gang(1, cpus=8), 0.0),
        (make_gang(1, memory_mib_per_node=200_000), 2 * HOUR_S),
        (make_gang(1, memory_mib_per_node=100_000), 0.0),
        (make_gang(2, scope=GpuScope.NODE, nodes_min=2, nodes_max=2), 0.0),
        (make_gang(3, scope=GpuScope.NODE, nodes_min=2, nodes_max=2), 2 * HOUR_S),
        (make_gang(1, required_nodes=("n02",), cpus=64, nodes_max=1), 2 * HOUR_S),
    ],
    ids=[
        "all CPUs",
        "some CPUs",
        "much memory",
        "some memory",
        "two of each node",
        "three of each node",
        "one by name",
    ],
)
def test_cpus_memory_and_nodes_bind_as_gpus_do(gang: GangRequest, start_s: float) -> None:
    nodes = [
        replace(node, cpus=64, cpus_used=32, memory_mib=256_000, memory_used_mib=128_000)
        for node in (make_node("n01", 4, used=2), make_node("n02", 4, used=2))
    ]
    holders = [
        replace(job, gang=replace(job.gang, cpus=32, memory_mib_per_node=128_000))
        for job in make_holders(nodes, left_s=2 * HOUR_S)
    ]

    table = Case(snapshot=make_snapshot(holders, nodes)).timetable()

    assert starts(table, make_job(1, gang=gang)) == [start_s]


def test_gang_that_waits_for_one_switch_starts_under_one() -> None:
    gang = make_gang(
        2, scope=GpuScope.NODE, nodes_min=2, nodes_max=2, switches=SwitchRequest(count=1, max_wait_s=HOUR_S)
    )

    def start_under(leaves: Mapping[str, Sequence[str]]) -> list[float | None]:
        holders = make_holders(HALVES, left_s=2 * HOUR_S)
        case = Case(snapshot=make_snapshot(holders, HALVES, topology=make_topology(leaves)))
        return starts(case.timetable(), make_job(1, gang=gang))

    assert start_under({"leaf1": ("n01", "n02")}) == [0.0]
    assert start_under({"leaf1": ("n01",), "leaf2": ("n02",)}) == [None]


def test_start_is_unknown_beyond_the_horizon_and_behind_a_job_without_a_limit() -> None:
    endless = make_job(1, gpus=8, time_limit_s=None)
    job = make_job(2, gpus=8)

    assert starts(timetable(HALVES, left_s=25 * HOUR_S, horizon_s=DAY_S), job) == [None]
    assert starts(timetable(HALVES, left_s=23 * HOUR_S, horizon_s=DAY_S), job) == [23 * HOUR_S]
    assert starts(timetable(HALVES), endless, job) == [2 * HOUR_S, None]


def test_job_that_runs_beyond_its_limit_releases_at_once() -> None:
    assert starts(timetable(HALVES, left_s=-60.0), make_job(1, gpus=8)) == [1.0]


def test_job_with_a_later_start_in_slurms_own_plan_does_not_start_now() -> None:
    table = timetable(HALVES)
    job = make_job(1, gpus=2)

    assert table.starts_now(job, HOUR_S)
    assert not table.starts_now(replace(job, start_time=TAKEN_AT + 60.0), HOUR_S)
    assert table.starts_now(replace(job, job_id=2), HOUR_S)


Added = list[tuple[Slot, Job]]


def scheduled(case: Case, table: Timetable) -> Added:
    """Add the jobs of a random queue in their order."""
    added: Added = []
    for job, limit_s in zip(case.queue.jobs, case.queue.limit_s.tolist(), strict=True):
        slot = table.slot(job, limit_s if np.isfinite(limit_s) else np.inf)
        if slot is not None:
            table.add(slot)
            added.append((slot, job))
    return added


@pytest.mark.no_cover
@settings(deadline=None)
@given(seed=st.integers(0, 100_000))
def test_jobs_that_hold_resources_at_once_never_hold_more_than_there_is(seed: int) -> None:
    case = Case(snapshot=random_queues.snapshot(np.random.default_rng(seed)))

    added = scheduled(case, case.timetable())

    for step in {slot.begin for slot, _ in added}:
        held = np.zeros_like(case.table.gpus_total)
        for slot, _ in added:
            if slot.begin <= step < slot.end:
                np.add.at(held, slot.claim.rows, slot.claim.gpus)
        assert (held <= (case.table.gpus_startable if step == 0 else case.table.gpus_total)).all()


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


@pytest.mark.no_cover
@settings(max_examples=examples(50), deadline=None)
@given(snapshots(), st.floats(0, 3 * HOUR_S))
def test_gang_never_fits_later_when_a_job_ends_sooner(snapshot: Snapshot, sooner_s: float) -> None:
    jobs = [replace(job, end_time=None if job.end_time is None else job.end_time - sooner_s) for job in snapshot.jobs]
    earlier = replace(snapshot, jobs=tuple(jobs))

    for job in snapshot.jobs:
        before, after = (earliest_by_limits(one, node_table(one), job) for one in (snapshot, earlier))

        assert (before is None) == (after is None)
        assert before is None or (after is not None and snapshot.taken_at <= after <= before)
