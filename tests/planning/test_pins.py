"""Gangs that the submit script holds to few nodes: when they begin to wait, for how long, and what ends the wait."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.apply.applier import Applier
from advisor.cycle import Cycle
from advisor.domain.actions import Lever, NodeRange, SetNice, SetNodeRange
from advisor.domain.gang import GangRequest, GpuCount
from advisor.domain.job import Job, JobHints
from advisor.domain.lease import Ending, LeaseState, intended, request_without
from advisor.domain.memory import NOTHING_KNOWN, Memory
from advisor.domain.snapshot import Snapshot
from advisor.planning.case import Case
from advisor.planning.pins import pin_of, waits_begun
from advisor.settings import Limits
from advisor.sim.cluster import parse_cluster
from advisor.sim.policies.advised import AdvisedSlurm, no_forecasts, truth
from advisor.sim.runner import SimulationOptions, simulate
from tests.builders import HOUR_S, TAKEN_AT, make_gang
from tests.examples import examples
from tests.fake_cluster import FakeCluster, fragmented
from tests.planning.test_placement import half_idle_nodes, waiting
from tests.sim.building import make_trace

ON_ONE, ON_TWO = make_gang(8, nodes_max=1), make_gang(12, nodes_min=1, nodes_max=2)
OPEN = NodeRange(low=1, high=8)
LIMITS = Limits()
BACK = SetNodeRange(job_id=1, before=NodeRange(low=1, high=1), after=OPEN)


def pinned(gang: GangRequest = ON_ONE, nodes: int = 1, **more: Any) -> Job:
    job = waiting(gang, **more)
    return replace(job, hints=replace(job.hints, pinned=nodes))


def begun_s(snapshot: Snapshot, memory: Memory = NOTHING_KNOWN, **more: Any) -> list[float]:
    """How long the gangs wait that begin to."""
    case = Case(snapshot=snapshot, memory=memory, **more)
    return [lease.due_time - TAKEN_AT for lease in waits_begun(case) if lease.due_time is not None]


def test_pinned_gang_waits_for_as_long_as_one_with_a_timer() -> None:
    (lease,) = waits_begun(Case(snapshot=half_idle_nodes(pinned())))
    (timer,) = Cycle().judge(half_idle_nodes(waiting(make_gang(8, nodes_min=1, nodes_max=8)))).recommendations

    assert (lease.action, lease.undo) == (timer.action, BACK)
    assert lease.due_time == TAKEN_AT + timer.expected.added_delay_max_s > TAKEN_AT
    assert (lease.state, lease.would_start_time, lease.added_delay_s) == (
        LeaseState.OUT,
        TAKEN_AT,
        timer.expected.added_delay_max_s,
    )


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(pinned(hours=0.01), id="saves less than a minute"),
        pytest.param(pinned(minutes=49 * 60.0), id="has waited for very long"),
        pytest.param(replace(pinned(), time_limit_s=None), id="its run time is not known"),
    ],
)
def test_gang_for_which_waiting_does_not_pay_is_given_back_at_once(job: Job) -> None:
    assert begun_s(half_idle_nodes(job)) == [0.0]


def test_gang_that_by_time_limits_starts_beyond_its_bound_is_given_back_at_once() -> None:
    snapshot = half_idle_nodes(pinned())
    jobs = [job if job.is_pending else replace(job, end_time=TAKEN_AT + 3700.0) for job in snapshot.jobs]
    late = replace(snapshot, jobs=tuple(jobs))

    assert begun_s(snapshot, limits=Limits(max_added_delay_s=3600.0)) == [1800.0]
    assert begun_s(late, limits=Limits(max_added_delay_s=3600.0)) == [0.0]


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(waiting(ON_ONE), id="its user asked for one node"),
        pytest.param(pinned(make_gang(8, nodes_min=1, nodes_max=8)), id="given back"),
        pytest.param(pinned(make_gang(8, nodes_min=1, nodes_max=2)), id="its user has set another bound"),
        pytest.param(pinned(make_gang(0, per_node=(GpuCount(count=8),), nodes_max=1)), id="GPUs of each node"),
        pytest.param(pinned(make_gang(4, nodes_max=1)), id="one node has room"),
        pytest.param(pinned(make_gang(24, nodes_min=1, nodes_max=3), 3), id="not its turn on any nodes"),
    ],
)
def test_other_gangs_begin_no_wait(job: Job) -> None:
    assert begun_s(half_idle_nodes(job)) == []


def test_wait_begins_once_and_for_jobs_that_can_be_changed_alone() -> None:
    snapshot = half_idle_nodes(pinned())
    (lease,) = waits_begun(Case(snapshot=snapshot))
    closed = replace(lease, ending=Ending.TAKEN_BACK, ended_time=TAKEN_AT)

    assert begun_s(snapshot, Memory(leases=(lease,))) == begun_s(snapshot, Memory(leases=(closed,))) == []
    assert begun_s(snapshot, levers=frozenset({Lever.NICE})) == []
    assert Cycle(limits=Limits(min_job_age_s=301.0)).judge(snapshot).left_alone[1] == "old_enough"


def cluster_with(job: Job) -> FakeCluster:
    """The cluster of `half_idle_nodes`."""
    return FakeCluster(jobs={each.job_id: each for each in half_idle_nodes(job).jobs})


def pinned_in_pieces() -> FakeCluster:
    """A pinned gang where the free GPUs lie two by two."""
    cluster = fragmented()
    held = replace(cluster.jobs[9], gang=make_gang(4, nodes_max=1), hints=JobHints(pinned=1))
    cluster.jobs[9] = held
    return cluster


def applier(cluster: FakeCluster, limits: Limits = LIMITS) -> Applier:
    return Applier(source=cluster, actuator=cluster, cycle=Cycle(limits=limits))


def test_request_is_given_back_when_the_wait_is_over_and_stays_so() -> None:
    cluster = pinned_in_pieces()
    at_work = applier(cluster)
    at_work.step()
    (lease,) = at_work.journal.leases()
    nothing_sent = list(cluster.sent)

    cluster.now = float(lease.due_time or 0.0)
    at_work.step()
    at_work.step()

    assert nothing_sent == []
    assert cluster.sent == [SetNodeRange(job_id=9, before=NodeRange(low=1, high=1), after=NodeRange(low=1, high=4))]
    assert [each.ending for each in at_work.journal.closed([9])] == [Ending.TAKEN_BACK]


def test_gang_that_should_not_wait_is_given_back_in_the_same_step() -> None:
    cluster = pinned_in_pieces()
    at_work = applier(cluster, Limits(max_job_wait_s=60.0))

    step = at_work.step()

    assert [receipt.action.after for receipt in step.reconciled.taken_back] == [NodeRange(low=1, high=4)]
    assert cluster.jobs[9].gang.nodes_max == 4


def test_gang_in_mode_observe_stays_as_it_is() -> None:
    cluster = pinned_in_pieces()
    at_work = replace(applier(cluster, Limits(max_job_wait_s=60.0)), wanted=lambda job, _: job.job_id != 9)

    at_work.step()

    assert (cluster.sent, at_work.journal.leases()) == ([], ())


def test_lift_of_a_gang_outlasts_the_end_of_its_wait() -> None:
    job = pinned()
    lift = replace(intended(SetNice(job_id=1, before=0, after=-7), TAKEN_AT), request=request_without((), job))
    given_back = BACK.applied_to(job)

    assert lift.request is not None
    assert lift.request.more_in(request_without((lift,), given_back)) == ""


def test_pin_of_a_gang_names_what_its_user_left_open() -> None:
    assert pin_of(pinned(ON_TWO, 2)) == SetNodeRange(
        job_id=1, before=NodeRange(low=1, high=12), after=NodeRange(low=1, high=2)
    )


# Simulated: a job on every node that outlasts the bound, and one gang of eight that leaves its node count open among
# short ones.
PINS = partial(AdvisedSlurm, summary="", levers=frozenset({Lever.NODE_RANGE}), pins=True)
BOUND_S, EVERY_S = 3 * HOUR_S, 300.0
SHORT = st.fixed_dictionaries(
    {
        "submit_time": st.integers(1, 80).map(lambda step: 300.0 * step),
        "gpus": st.integers(1, 3),
        "run_time_s": st.integers(1, 12).map(lambda step: 300.0 * step),
        "time_limit_s": st.just(HOUR_S),
    }
)


def ends_of_gang(
    policies: Sequence[AdvisedSlurm | str], on_nodes: Sequence[int], shorts: Sequence[Mapping[str, float]], run_h: int
) -> list[float]:
    """Return when the gang ends under each policy."""
    long = [{"gpus": gpus, "run_time_s": 12 * HOUR_S, "time_limit_s": 12 * HOUR_S} for gpus in on_nodes]
    gang = {"submit_time": HOUR_S, "gpus": 8, "run_time_s": run_h * HOUR_S, "nodes_max": 0}
    rows = [*long, *sorted([*shorts, gang | {"time_limit_s": 24 * HOUR_S}], key=lambda row: row["submit_time"])]
    trace = make_trace(rows)
    (row,) = np.flatnonzero(trace.jobs["nodes_max"] == 0)
    cluster = parse_cluster("nodes=4,gpus=8")
    options = SimulationOptions(limits=Limits(max_added_delay_s=BOUND_S), advise_every_s=EVERY_S)
    return [float(simulate(trace, cluster, each, options=options).outcomes["end_time"][row]) for each in policies]


@pytest.mark.parametrize("forecaster", [no_forecasts, truth])
@settings(max_examples=examples(60), deadline=None)
@given(
    on_nodes=st.lists(st.integers(1, 5), min_size=4, max_size=4),
    shorts=st.lists(SHORT, max_size=60),
    run_h=st.integers(1, 12),
)
def test_pinned_gang_never_ends_later_than_an_unpinned_twin_by_more_than_its_bound(
    forecaster: Any, on_nodes: list[int], shorts: list[Mapping[str, float]], run_h: int
) -> None:
    pins = PINS(name="pins", forecaster=forecaster)

    end, end_of_twin = ends_of_gang([pins, "slurm"], on_nodes, shorts, run_h)

    assert end <= end_of_twin + BOUND_S + EVERY_S


def test_without_the_daemon_a_pinned_gang_ends_later_than_its_bound() -> None:
    pins = PINS(name="pins", forecaster=no_forecasts)

    end, end_of_twin, with_daemon = ends_of_gang(["pin", "slurm", pins], (5, 5, 5, 5), (), 1)

    assert end - end_of_twin > 9 * HOUR_S
    assert 0.0 < with_daemon - end_of_twin <= EVERY_S
