"""The model of execution on placements that are given, held against the simulator's own runs."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.sim.cluster import Network, parse_cluster
from advisor.sim.run_outcome import End, Run
from advisor.sim.runner import simulate
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_trace
from tools.live.arm import PlacedJobs

CLUSTER = replace(parse_cluster("nodes=4,gpus=8,leaf=2"), network=Network(nic_gbps=25.0, oversubscription=4.0))
STEP_S = 0.5


def gang(submit_time: float, gpus: int, run_time_s: float) -> dict[str, object]:
    """Return a job that takes as many GPUs on each of the four nodes."""
    return {
        "submit_time": submit_time,
        "gpus": gpus,
        "nodes_min": 4,
        "nodes_max": 4,
        "run_time_s": run_time_s,
        "time_limit_s": 3600.0,
        "model": "vgg16",
    }


def played(trace: Trace, starts: list[float]) -> Run:
    """Start jobs at given instants on all nodes, and end each when its work is done, to within a step."""
    execution = PlacedJobs(trace, CLUSTER)
    waiting, ended = list(range(len(trace))), 0
    for now in np.arange(0.0, 4000.0, STEP_S).tolist():
        for row in execution.done(now):
            execution.end(row, now, End.FINISHED)
            ended += 1
        while waiting and starts[waiting[0]] <= now:
            row = waiting.pop(0)
            execution.submit(row)
            execution.start(row, {name: int(trace.jobs["gpus"][row]) // 4 for name in CLUSTER.node_names}, now)
        if ended == len(trace):
            break
    return execution.run("none", 1, wall_s=1.0, changes=0)


def test_jobs_on_the_same_nodes_take_as_long_as_in_the_simulator() -> None:
    # For a while, the two gangs share the links of all nodes.
    trace = make_trace([gang(0.0, 16, 100.0), gang(30.0, 8, 60.0)])
    simulated = simulate(trace, CLUSTER, "slurm")

    run = played(trace, simulated.outcomes["start_time"].tolist())

    alone_s = simulate(make_trace([gang(0.0, 16, 100.0)]), CLUSTER, "slurm").outcomes["end_time"][0]
    assert run.outcomes["end_time"] == pytest.approx(simulated.outcomes["end_time"], abs=3 * STEP_S)
    assert run.outcomes["exposed_gpu_s"] == pytest.approx(simulated.outcomes["exposed_gpu_s"], rel=0.02)
    assert run.outcomes["end_time"][0] > alone_s + 5.0


def test_a_job_whose_work_is_done_is_named_once_and_runs_until_it_is_ended() -> None:
    execution = PlacedJobs(make_trace([{}]), CLUSTER)
    execution.submit(0)
    execution.start(0, {CLUSTER.node_names[0]: 1}, 5.0)

    assert (execution.done(104.0), execution.done(105.0), execution.done(106.0)) == ([], [0], [])
    assert execution.is_running(0)
    execution.end(0, 107.0, End.FINISHED)
    assert not execution.is_running(0)
    assert execution.run("none", 1, wall_s=1.0, changes=0).outcomes["end_time"].tolist() == [107.0]


def test_a_requeued_job_does_its_work_again() -> None:
    execution = PlacedJobs(make_trace([{}]), CLUSTER)
    execution.submit(0)
    execution.start(0, {CLUSTER.node_names[0]: 1}, 0.0)
    execution.requeue(0, 50.0)
    execution.start(0, {CLUSTER.node_names[1]: 1}, 60.0)

    done = [execution.done(now) for now in (159.0, 160.0 + CLUSTER.costs.restart_s)]

    outcome = execution.run("none", 1, wall_s=1.0, changes=0).outcomes[0]
    assert done == [[], [0]]
    assert (outcome["preemptions"], outcome["start_time"]) == (1, 0.0)
