"""Cuts of a trace in compressed time, the requests of its jobs, and the model of execution of given placements."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.fit.accounting import read_accounting
from advisor.sim.cluster import Network, parse_cluster
from advisor.sim.run_outcome import End, Run
from advisor.sim.runner import simulate
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_trace
from tests.sim.runs import random_trace
from tools.live.arm import PlacedJobs
from tools.live.trace_jobs import accounting_of, as_asked, fit_past, options_of
from tools.live.window import (
    LIMIT_STEP_S,
    SHORTEST_RUN_S,
    USERS,
    Cut,
    accounts_by_user,
    window_and_past,
)  # fmt: skip

CLUSTER = parse_cluster("nodes=4,gpus=8,leaf=2")
CUT = Cut(seed=3, load=1.5, span_s=4 * 3600.0, longest_s=6 * 3600.0, speedup=60.0)
TRACE = random_trace(600)


def test_a_cut_has_the_load_that_is_asked_for_and_runs_faster() -> None:
    window = window_and_past(TRACE, CLUSTER, CUT).trace

    jobs = window.jobs
    work_s = float((jobs["run_time_s"] * jobs["gpus"]).sum())
    assert work_s / CLUSTER.gpus / float(jobs["submit_time"][-1]) == pytest.approx(CUT.load, rel=0.05)
    assert float(jobs["submit_time"][-1]) * CUT.speedup == pytest.approx(CUT.span_s, rel=0.2)
    assert jobs["run_time_s"].min() >= SHORTEST_RUN_S
    assert (jobs["time_limit_s"] % LIMIT_STEP_S == 0.0).all()
    assert jobs["gpus"].max() <= CLUSTER.gpus // 2
    assert set(window.users) == set(USERS)


def test_equal_seeds_give_equal_cuts_and_others_give_others() -> None:
    first, again, other = (window_and_past(TRACE, CLUSTER, replace(CUT, seed=seed)).trace for seed in (3, 3, 4))

    assert first.jobs.tobytes() == again.jobs.tobytes()
    assert first.jobs.tobytes() != other.jobs.tobytes()


def test_a_number_of_jobs_can_be_asked_for() -> None:
    assert len(window_and_past(TRACE, CLUSTER, replace(CUT, jobs=50)).trace) == 50


def test_the_user_with_most_jobs_comes_first() -> None:
    window = window_and_past(TRACE, CLUSTER, CUT).trace

    counts = np.bincount(window.jobs["user"], minlength=len(USERS))
    assert counts[0] == counts.max()
    assert {user for _, user in accounts_by_user(window)} == {USERS[code] for code in np.flatnonzero(counts)}


def test_a_trace_that_is_too_short_is_refused() -> None:
    with pytest.raises(SimulationError, match="too few"):
        window_and_past(TRACE, CLUSTER, replace(CUT, jobs=6000))


def test_the_past_are_the_latest_jobs_that_ended_before_the_cut_and_leaves_the_cut_as_it_is() -> None:
    without = window_and_past(TRACE, CLUSTER, CUT).trace
    window = window_and_past(TRACE, CLUSTER, replace(CUT, past_jobs=40))

    past = window.past.jobs
    assert window.trace.jobs.tobytes() == without.jobs.tobytes()
    assert 0 < len(past) <= 40
    assert (past["submit_time"] + past["run_time_s"]).max() <= 0.0
    assert (past["time_limit_s"] % LIMIT_STEP_S == 0.0).all()
    assert window.past.users == window.trace.users


def test_the_past_reads_as_accounting_of_jobs_that_started_at_once(tmp_path: Path) -> None:
    past = window_and_past(TRACE, CLUSTER, replace(CUT, past_jobs=40)).past
    file = tmp_path / "sacct.json"
    file.write_text(accounting_of(past, 2e9))

    read = read_accounting(file)

    assert read.left_out == {}
    assert read.ended.jobs.user == tuple(past.users[code] for code in past.jobs["user"])
    assert read.ended.run_s == pytest.approx(np.minimum(past.jobs["run_time_s"], past.jobs["time_limit_s"]), abs=0.5)
    assert read.ended.end_time == pytest.approx(2e9 + past.jobs["submit_time"] + read.ended.run_s, abs=1.5)
    assert read.ended.jobs.gpus.tolist() == past.jobs["gpus"].tolist()


def test_too_short_a_past_is_not_fitted(tmp_path: Path) -> None:
    past = window_and_past(TRACE, CLUSTER, replace(CUT, past_jobs=40)).past

    with pytest.raises(SimulationError, match="40 jobs of the trace ended before this part"):
        fit_past(past, tmp_path, zero_time=2e9)


LARGE = {"gpus": 16, "nodes_max": 0, "gpus_min": 8, "gpus_max": 32}


def options(**job: Any) -> tuple[str, ...]:
    """Return the options of a job that asks for GPUs, nodes and nothing else."""
    return options_of(make_trace([{"time_limit_s": 120.0, **job}]), 0, 8)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"gpus": 1, "nodes_max": 0}, ("--nodes=1", "--gres=gpu:a100:1", "--ntasks-per-node=1")),
        ({"gpus": 16, "nodes_max": 2}, ("--nodes=2", "--gres=gpu:a100:8", "--ntasks-per-node=1")),
        ({"gpus": 9, "nodes_max": 2}, ("--nodes=2", "--gpus=a100:9", "--ntasks=2")),
        ({"gpus": 8, "nodes_max": 0}, ("--gpus=a100:8", "--ntasks=8")),
        (LARGE, ("--nodes=1-4", "--gpus=a100:16", "--ntasks=4")),
    ],
    ids=["one GPU", "whole nodes", "parts of nodes", "any nodes", "a range of sizes"],
)
def test_a_job_asks_for_its_size(job: dict[str, Any], expected: tuple[str, ...]) -> None:
    found = options(**job)

    assert found[-len(expected) :] == expected
    assert "--time=2" in found


def test_hints_are_in_the_comment() -> None:
    found = options(**LARGE, model="bert", checkpoint_interval_s=30.4)

    assert "--comment=sadvise: model=bert gpus=8-32 ckpt=30" in found


def test_the_simulator_binds_a_range_of_sizes_to_as_many_nodes_as_sbatch_does() -> None:
    trace = as_asked(make_trace([LARGE, {"gpus": 8, "nodes_max": 0}]), 8)

    assert trace.jobs["nodes_min"].tolist() == [1, 0]
    assert trace.jobs["nodes_max"].tolist() == [4, 0]


NETWORKED = replace(parse_cluster("nodes=4,gpus=8,leaf=2"), network=Network(nic_gbps=25.0, oversubscription=4.0))
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
    execution = PlacedJobs(trace, NETWORKED)
    waiting, ended = list(range(len(trace))), 0
    for now in np.arange(0.0, 4000.0, STEP_S).tolist():
        for row in execution.done(now):
            execution.end(row, now, End.FINISHED)
            ended += 1
        while waiting and starts[waiting[0]] <= now:
            row = waiting.pop(0)
            execution.submit(row)
            execution.start(row, {name: int(trace.jobs["gpus"][row]) // 4 for name in NETWORKED.node_names}, now)
        if ended == len(trace):
            break
    return execution.run("none", 1, wall_s=1.0, changes=0)


def test_jobs_on_the_same_nodes_take_as_long_as_in_the_simulator() -> None:
    # For a while, the two gangs share the links of all nodes.
    trace = make_trace([gang(0.0, 16, 100.0), gang(30.0, 8, 60.0)])
    simulated = simulate(trace, NETWORKED, "slurm")

    run = played(trace, simulated.outcomes["start_time"].tolist())

    alone_s = simulate(make_trace([gang(0.0, 16, 100.0)]), NETWORKED, "slurm").outcomes["end_time"][0]
    assert run.outcomes["end_time"] == pytest.approx(simulated.outcomes["end_time"], abs=3 * STEP_S)
    assert run.outcomes["exposed_gpu_s"] == pytest.approx(simulated.outcomes["exposed_gpu_s"], rel=0.02)
    assert run.outcomes["end_time"][0] > alone_s + 5.0


def test_a_job_whose_work_is_done_is_named_once_and_runs_until_it_is_ended() -> None:
    execution = PlacedJobs(make_trace([{}]), NETWORKED)
    execution.submit(0)
    execution.start(0, {NETWORKED.node_names[0]: 1}, 5.0)

    assert (execution.done(104.0), execution.done(105.0), execution.done(106.0)) == ([], [0], [])
    assert execution.is_running(0)
    execution.end(0, 107.0, End.FINISHED)
    assert not execution.is_running(0)
    assert execution.run("none", 1, wall_s=1.0, changes=0).outcomes["end_time"].tolist() == [107.0]


def test_a_requeued_job_does_its_work_again() -> None:
    execution = PlacedJobs(make_trace([{}]), NETWORKED)
    execution.submit(0)
    execution.start(0, {NETWORKED.node_names[0]: 1}, 0.0)
    execution.requeue(0, 50.0)
    execution.start(0, {NETWORKED.node_names[1]: 1}, 60.0)

    done = [execution.done(now) for now in (159.0, 160.0 + NETWORKED.costs.restart_s)]

    outcome = execution.run("none", 1, wall_s=1.0, changes=0).outcomes[0]
    assert done == [[], [0]]
    assert (outcome["preemptions"], outcome["start_time"]) == (1, 0.0)
