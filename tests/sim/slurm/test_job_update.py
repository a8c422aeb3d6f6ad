"""What a change to a simulated job does: the nodes that a gang names, and what is kept between two snapshots."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.apply.applier import Applier
from advisor.cycle import Cycle
from advisor.domain.actions import (
    Action,
    NodeRange,
    SetGpus,
    SetNice,
    SetNodeList,
    SetNodeRange,
    SetSwitches,
    SetTimeMin,
)
from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.job import Job
from advisor.domain.plan import Outcome
from advisor.domain.snapshot import Snapshot
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import Cluster, Failures, NodeGroup, SlurmParameters, parse_cluster
from advisor.sim.policies.advised import advise
from advisor.sim.slurm import job_update
from advisor.sim.slurm.job_update import with_room_for_lists
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.state import PENDING, RUNNING
from advisor.sim.traces.trace import Trace
from tests.builders import size_of
from tests.sim.building import make_state, make_trace
from tests.sim.drawn_queues import clusters, go_on, started, traces

FOUR_NODES = parse_cluster("nodes=4,gpus=4,leaf=2")
# Lists of users count where the cluster file names the nodes.
NAMED = Cluster(nodes=(NodeGroup(count=4, gpus=4, leaf=2, names="n[1-4]"),))
FULL = {"gpus": 12, "nodes_min": 3, "nodes_max": 3, "run_time_s": 100, "time_limit_s": 120}
LONG = {"gpus": 2, "run_time_s": 9000, "time_limit_s": 9900}
GANG = {"submit_time": 10, "gpus": 8, "nodes_min": 2, "nodes_max": 2, "run_time_s": 500, "time_limit_s": 600}


def waiting(*gangs: dict[str, Any], cluster: Cluster = FOUR_NODES, **columns: Any) -> SimulatedSlurm:
    """Return a cluster whose first three nodes are held until 100, and gangs that wait for two of them."""
    trace = replace(make_trace([FULL, LONG, *(gangs or (GANG,))]), **columns)
    return simulated(trace, cluster)


def simulated(trace: Trace, cluster: Cluster) -> SimulatedSlurm:
    state = with_room_for_lists(make_state(trace, cluster))
    of_trace = SimulatedSlurm(trace, cluster, state, build_slurm(state, trace, cluster))
    go_on(of_trace, 50.0)
    return of_trace


def names(on: SimulatedSlurm, *nodes: str, job: int = 3) -> Outcome:
    """Let a job name nodes."""
    before = on.snapshot().jobs_by_id[job].gang.required_nodes
    return on.apply(SetNodeList(job_id=job, before=tuple(sorted(before)), after=nodes)).outcome


def held(on: SimulatedSlurm, job: int = 3) -> set[str]:
    """Return the nodes on which a job runs."""
    allocation = on.snapshot().jobs_by_id[job].allocation
    return set() if allocation is None else set(allocation.nodes)


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n1", "n3"), ("n2", "n3")])
def test_gang_starts_on_the_nodes_that_it_names(nodes: tuple[str, ...]) -> None:
    slurm = waiting()

    outcome = names(slurm, *nodes)
    go_on(slurm, 300.0)

    assert outcome is Outcome.APPLIED
    assert held(slurm) == set(nodes)


def test_gang_waits_for_the_nodes_that_it_names_while_others_are_idle() -> None:
    slurm = waiting()

    names(slurm, "n3", "n4")
    go_on(slurm, 300.0)

    assert slurm.state.jobs["phase"][2] == PENDING
    assert slurm.snapshot().jobs_by_id[3].gang.required_nodes == ("n3", "n4")


def test_gang_that_names_none_again_starts_wherever_it_fits() -> None:
    slurm = waiting()
    own = slurm.state.jobs[["node_class", "required"]][2].copy()

    names(slurm, "n3", "n4")
    go_on(slurm, 200.0)
    outcome = names(slurm)
    go_on(slurm, 300.0)

    assert outcome is Outcome.APPLIED
    assert slurm.state.jobs[["node_class", "required"]][2] == own
    assert slurm.state.jobs["phase"][2] == RUNNING


def test_list_of_a_user_is_replaced_and_returned() -> None:
    slurm = waiting({**GANG, "required_nodes": 1}, required_nodes=("", "n3,n4"), cluster=NAMED)

    assert slurm.snapshot().jobs_by_id[3].gang.required_nodes == ("n3", "n4")
    assert names(slurm, "n1", "n2") is Outcome.APPLIED
    assert names(slurm, "n1", "n2") is Outcome.ALREADY_SO
    assert names(slurm, "n3", "n4") is Outcome.APPLIED
    assert names(slurm) is Outcome.APPLIED
    go_on(slurm, 300.0)
    assert slurm.state.jobs["phase"][2] == RUNNING


@pytest.mark.parametrize("nodes", [("n1", "n9"), ("n1", "n2")])
def test_nodes_that_are_unknown_or_excluded_are_refused(nodes: tuple[str, ...]) -> None:
    slurm = waiting({**GANG, "excluded_nodes": 1}, excluded_nodes=("", "n2"), cluster=NAMED)

    assert names(slurm, *nodes) is Outcome.FAILED
    assert slurm.snapshot().jobs_by_id[3].gang.required_nodes == ()


def test_row_for_a_list_is_used_again_when_its_job_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_update, "ROOM", 1)
    # The second gang waits for the node that is full for hours.
    slurm = waiting(GANG, {**GANG, "submit_time": 20, "gpus": 16, "nodes_min": 4, "nodes_max": 4})

    assert names(slurm, "n1", "n2") is Outcome.APPLIED
    assert names(slurm, "n1", "n3") is Outcome.APPLIED
    assert names(slurm, "n1", "n2", "n3", "n4", job=4) is Outcome.FAILED
    go_on(slurm, 400.0)
    assert held(slurm) == {"n1", "n3"}
    assert names(slurm, "n1", "n2", "n3", "n4", job=4) is Outcome.FAILED
    go_on(slurm, 700.0)
    assert names(slurm, "n1", "n2", "n3", "n4", job=4) is Outcome.APPLIED


def test_simulation_without_room_for_lists_refuses_them() -> None:
    trace = make_trace([FULL, LONG, GANG])
    state = make_state(trace, FOUR_NODES)
    slurm = SimulatedSlurm(trace, FOUR_NODES, state, build_slurm(state, trace, FOUR_NODES))
    go_on(slurm, 50.0)

    assert names(slurm, "n1", "n2") is Outcome.FAILED


CYCLE = Cycle(planning=PlanningSettings(min_saving_s=1.0), limits=Limits(min_job_age_s=0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """An instant at which snapshots are compared, and what happens then: an action, or a cycle of the advisor."""

    time: float
    what: str
    job: int
    number: int


STOPS = st.lists(
    st.builds(
        Stop,
        time=st.sampled_from([7.0, 30.0, 290.0, 900.0]) | st.floats(0.0, 2000.0),
        what=st.sampled_from(["nothing", "cycle", "nice", "switches", "nodes", "gpus", "soft limit"]),
        job=st.integers(0, 9),
        number=st.integers(0, 4),
    ),
    min_size=3,
    max_size=12,
).map(lambda stops: sorted(stops, key=lambda stop: stop.time))


def action(what: str, job: Job, row: np.void, number: int) -> Action:
    """Return a change of a pending job; its GPUs stay within its range."""
    gang = job.gang
    match what:
        case "nice":
            return SetNice(job_id=job.job_id, before=job.nice, after=100 * number - 50)
        case "switches":
            asked = SwitchRequest(count=number, max_wait_s=60.0) if number else None
            return SetSwitches(job_id=job.job_id, before=gang.switches, after=asked)
        case "nodes":
            before = NodeRange(low=gang.nodes_min, high=gang.nodes_max or 0)
            return SetNodeRange(job_id=job.job_id, before=before, after=NodeRange(low=1, high=number))
        case "gpus":
            scope, nodes = (GpuScope.NODE, gang.nodes_min) if gang.per_node else (GpuScope.JOB, 1)
            count = min(max(number, int(row["gpus_min"])), int(row["gpus_max"])) // nodes
            after = size_of(GpuCount(gpu_type=gang.gpu_type, count=max(1, count)))
            return SetGpus(job_id=job.job_id, scope=scope, before=size_of(*gang.counts(scope)), after=after)
        case _:
            return SetTimeMin(job_id=job.job_id, before=job.time_min_s, after=60.0 * number or None)


def act(simulated: SimulatedSlurm, applier: Applier, stop: Stop) -> None:
    """Do what happens at a stop."""
    pending = int(simulated.slurm.control["lined"][0])
    if stop.what == "cycle":
        advise(applier, simulated)
    elif stop.what != "nothing" and pending:
        row = int(simulated.slurm.line[stop.job % pending])
        simulated.apply(action(stop.what, simulated.job(row), simulated.state.jobs[row], stop.number))


def read_again(simulated: SimulatedSlurm, trace: Trace, cluster: Cluster) -> Snapshot:
    """Return the snapshot of one who has read nothing before."""
    return SimulatedSlurm(trace, cluster, simulated.state, simulated.slurm).snapshot()


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(trace=traces(), cluster=clusters(), stops=STOPS, seed=st.integers(0, 3))
def test_snapshot_with_what_is_kept_is_that_which_is_read_again(
    trace: Trace, cluster: Cluster, stops: list[Stop], seed: int
) -> None:
    simulated = started(trace, cluster, seed)
    applier = Applier(source=simulated, actuator=simulated, cycle=CYCLE)

    for stop in stops:
        go_on(simulated, stop.time)

        assert simulated.snapshot() == read_again(simulated, trace, cluster)

        act(simulated, applier, stop)

        assert simulated.snapshot() == read_again(simulated, trace, cluster)


def test_a_job_that_was_requeued_between_two_snapshots_waits_from_then_on() -> None:
    rows = [{"gpus": gpus, "run_time_s": 300.0} for gpus in (1, 2, 8, 1, 1, 1, 1)]
    rows = [{**row, "submit_time": time} for row, time in zip(rows, (0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 290.0), strict=True)]
    # Without the weight of its age, a job has the same priority before and after.
    failing = replace(
        parse_cluster("nodes=11,gpus=1"),
        failures=Failures(node_mtbf_h=0.2, repair_h=0.1),
        slurm=SlurmParameters(priority_weight_age=0.0),
    )
    trace, requeued = make_trace(rows), 0
    for seed in range(20):
        simulated = started(trace, failing, seed)
        for time in (7.0, 290.0, 400.0, 700.0):
            go_on(simulated, time)
            snapshot = simulated.snapshot()
            requeued += int(snapshot.jobs_by_id[3].is_pending and time > 7.0)
            assert snapshot == read_again(simulated, trace, failing), (seed, time)
    assert requeued
