"""The board of the simulator's arrays is that of its snapshot, to the bit, whatever happened before."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.apply.applier import Applier
from advisor.cycle import Cycle
from advisor.domain.actions import Action, NodeRange, SetGpus, SetNice, SetNodeRange, SetSwitches, SetTimeMin
from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.job import Job
from advisor.features.board import JOB_COLUMNS, Board
from advisor.planning.case import Case
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import Cluster, Failures, NodeGroup, SlurmParameters, parse_cluster
from advisor.sim.node_events import draw_faults
from advisor.sim.policies.advised import advise
from advisor.sim.policies.state_board import state_board
from advisor.sim.queueing import FULL
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import with_room
from advisor.sim.traces.trace import Trace
from tests.builders import size_of
from tests.examples import examples
from tests.sim.building import make_state, make_trace
from tests.sim.test_engine import mixed_requests

CYCLE = Cycle(planning=PlanningSettings(min_saving_s=1.0), limits=Limits(min_job_age_s=0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """An instant at which the boards are compared, and what happens then: an action, or a cycle of the advisor."""

    time: float
    what: str
    job: int
    number: int


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Draw jobs that come one upon the other, so that most wait; some are larger than any cluster here."""
    jobs = []
    for submit_time in sorted(draw(st.lists(st.sampled_from([0, 0, 0.5, 7, 60, 290]), min_size=6, max_size=14))):
        gpus = draw(st.sampled_from([1, 2, 3, 4, 4, 8, 40]))
        low, high = draw(st.sampled_from([(gpus, gpus), (max(1, gpus // 2), 2 * gpus), (gpus, gpus + 1)]))
        limit_s = draw(st.sampled_from([np.inf, 600.0, 3600.5]))
        jobs.append(
            {
                "submit_time": submit_time,
                "gpus": gpus,
                "gpus_min": low,
                "gpus_max": high,
                "nodes_max": draw(st.sampled_from([0, 1, 4])),
                "run_time_s": draw(st.sampled_from([300, 900, 4000])),
                "time_limit_s": limit_s,
                "time_min_s": draw(st.sampled_from([0.0, 300.0])),
                "cpus_per_gpu": draw(st.sampled_from([0, 4])),
                "gpu_type": draw(st.sampled_from([-1, 0, 1])),
                "nice": draw(st.sampled_from([0, 0, -7])),
                "user": draw(st.sampled_from(["ann", "bob"])),
            }
        )
    return replace(make_trace(jobs), gpu_types=("v100", "a100"))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Draw up to three kinds of nodes, with and without names; a dozen leaves or faults now and then."""
    types = draw(st.sampled_from([("",), ("v100",), ("v100", "a100"), ("v100", "", "gpu"), ("a100", "v100", "")]))
    groups = tuple(
        NodeGroup(
            count=draw(st.sampled_from([1, 2, 3])), gpus=draw(st.sampled_from([1, 4])), cpus=16, leaf=1, gpu_type=name
        )
        for name in types
    )
    many = (NodeGroup(count=9, gpus=1, cpus=16, leaf=draw(st.integers(0, 2)), gpu_type=types[0]),)
    return Cluster(
        nodes=(*groups, *(many if draw(st.booleans()) else ())),
        failures=Failures(node_mtbf_h=draw(st.sampled_from([0.0, 0.1, 0.5])), repair_h=0.1),
        slurm=SlurmParameters(priority_weight_age=draw(st.sampled_from([0.0, 1e6]))),
    )


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


def started(trace: Trace, cluster: Cluster, seed: int = 0) -> SimulatedSlurm:
    """Return a simulated Slurm before the first submission, with the faults of a seed."""
    state = make_state(trace, cluster)
    state = state._replace(faults=draw_faults(state, cluster, np.random.default_rng(seed)))
    return SimulatedSlurm(trace, cluster, state, build_slurm(state, trace, cluster))


def go_on(simulated: SimulatedSlurm, until: float) -> None:
    """Run the model of slurmctld up to an instant."""
    while run_slurm(simulated.state, simulated.slurm, until) == FULL:
        simulated.state = with_room(simulated.state)


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


def of_snapshot(simulated: SimulatedSlurm, depth: int) -> Board:
    return Case(snapshot=simulated.snapshot(), settings=PlanningSettings(depth=depth)).board


def bits(board: Board) -> tuple[bytes, ...]:
    arrays = (board.job_id, board.jobs, board.nodes)
    return tuple(str((array.shape, array.dtype)).encode() + array.tobytes() for array in arrays)


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(trace=traces(), cluster=clusters(), stops=STOPS, seed=st.integers(0, 3), depth=st.sampled_from([1, 3, 500]))
def test_board_of_the_arrays_is_that_of_the_snapshot(
    trace: Trace, cluster: Cluster, stops: list[Stop], seed: int, depth: int
) -> None:
    simulated = started(trace, cluster, seed)
    applier = Applier(source=simulated, actuator=simulated, cycle=CYCLE)

    for stop in stops:
        go_on(simulated, stop.time)

        assert bits(state_board(simulated, depth)) == bits(of_snapshot(simulated, depth))

        act(simulated, applier, stop)

        assert bits(state_board(simulated, depth)) == bits(of_snapshot(simulated, depth))


def waiting() -> SimulatedSlurm:
    """Return two full nodes, and two jobs that wait: 3 and 4."""
    full = {"gpus": 4, "run_time_s": 1000, "time_limit_s": 1200}
    wide = {"submit_time": 10, "gpus": 8, "gpus_min": 2, "gpus_max": 8, "nodes_max": 0, "time_limit_s": np.inf}
    simulated = started(make_trace([full, full, wide, {"submit_time": 20, "gpus": 2}]), parse_cluster("nodes=2,gpus=4"))
    go_on(simulated, 100.0)
    return simulated


EIGHT, FOUR = (size_of(GpuCount(count=count)) for count in (8, 4))
CHANGES: dict[str, tuple[Action, list[float]]] = {
    "nice": (SetNice(job_id=3, before=0, after=50), [0.0, 50.0]),
    "gpus": (SetGpus(job_id=3, scope=GpuScope.JOB, before=EIGHT, after=FOUR), [8.0, 4.0]),
}


@pytest.mark.parametrize("column", CHANGES)
def test_change_of_one_job_shows_in_both_boards(column: str) -> None:
    simulated, (change, values) = waiting(), CHANGES[column]
    before = state_board(simulated, 500)

    simulated.apply(change)

    after = state_board(simulated, 500)
    assert [float(board.jobs[board.job_id == 3, JOB_COLUMNS.index(column)][0]) for board in (before, after)] == values
    assert bits(after) == bits(of_snapshot(simulated, 500)) != bits(before)


def test_node_that_fails_takes_its_gpus_and_the_jobs_too_large_for_the_rest() -> None:
    simulated = waiting()
    simulated.state.nodes["is_up"][1] = 0

    board = state_board(simulated, 500)

    assert board.job_id.tolist() == [4]
    assert bits(board) == bits(of_snapshot(simulated, 500))


@pytest.mark.parametrize("time", [100.0, 1500.0, 20_000.0, 70_000.0])
def test_jobs_without_gpus_are_in_neither_board_and_drained_nodes_are_not_usable(time: float) -> None:
    simulated = started(*mixed_requests(), seed=1)
    go_on(simulated, time)

    board = state_board(simulated, 500)

    assert board.jobs[:, JOB_COLUMNS.index("gpus")].all()
    assert bits(board) == bits(of_snapshot(simulated, 500))


def test_a_job_that_was_requeued_between_two_snapshots_waits_from_then_on() -> None:
    rows = [{"gpus": gpus, "run_time_s": 300.0} for gpus in (1, 2, 8, 1, 1, 1, 1)]
    rows = [{**row, "submit_time": time} for row, time in zip(rows, (0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 290.0), strict=True)]
    # Without the weight of its age, a job has the same priority before and after.
    failing = replace(
        parse_cluster("nodes=11,gpus=1"),
        failures=Failures(node_mtbf_h=0.2, repair_h=0.1),
        slurm=SlurmParameters(priority_weight_age=0.0),
    )
    requeued = 0
    for seed in range(20):
        simulated = started(make_trace(rows), failing, seed)
        for time in (7.0, 290.0, 400.0, 700.0):
            go_on(simulated, time)
            boards = [state_board(simulated, 500), of_snapshot(simulated, 500)]
            requeued += int((boards[0].job_id == 3).any() and time > 7.0)
            assert bits(boards[0]) == bits(boards[1]), (seed, time)
    assert requeued
