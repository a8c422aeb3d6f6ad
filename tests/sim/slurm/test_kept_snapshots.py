"""Jobs and nodes that a simulated Slurm keeps between two snapshots are those that it would read again."""

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
from advisor.domain.snapshot import Snapshot
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import Cluster, Failures, SlurmParameters, parse_cluster
from advisor.sim.policies.advised import advise
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.traces.trace import Trace
from tests.builders import size_of
from tests.examples import examples
from tests.sim.building import make_trace
from tests.sim.drawn_queues import clusters, go_on, started, traces

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
@settings(max_examples=examples(150), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
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
