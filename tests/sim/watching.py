"""Look into a run: what a round policy sees, and whether the books are right after every step and decision."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

import numpy as np
import pytest

from advisor.sim import simulated_policy
from advisor.sim.cluster import Cluster
from advisor.sim.policies import POLICIES, advised, queue_policy, rounds, slurm
from advisor.sim.policies.rounds import Decision, RoundPolicy, RoundView
from advisor.sim.queueing import DONE, FULL
from advisor.sim.run_outcome import Run
from advisor.sim.simulated_policy import Problem, SimulatedPolicy, SimulationOptions
from advisor.sim.state import ENDED, FUTURE, NONE, PENDING, RUNNING, State, with_room
from advisor.sim.traces.trace import Trace
from tests.sim.building import IDEAL, run_of

Step = Callable[[State, float], int]


def check_books(state: State) -> None:
    """Assert that no GPU, CPU or MiB is held twice or lost, and that all lists and sums agree."""
    jobs, nodes = state.jobs, state.nodes
    tally = state.tally[0]
    running = np.flatnonzero(jobs["phase"] == RUNNING)
    assert sorted(state.running[: tally["running"]].tolist()) == running.tolist()
    assert tally["pending"] + tally["waiting"] == (jobs["phase"] == PENDING).sum()
    held = np.zeros((3, len(nodes)), np.int64)
    jobs_on: list[list[int]] = [[] for _ in nodes]
    for row in running.tolist():
        job = jobs[row]
        places = slice(job["pool"], job["pool"] + job["span"])
        on, gpus = state.held_nodes[places], state.held_gpus[places].astype(np.int64)
        assert len(set(on.tolist())) == len(on)
        assert (gpus > 0).all()
        assert gpus.sum() == job["held"]
        for node in on.tolist():
            jobs_on[node].append(row)
        if job["is_guest"]:
            assert jobs["partner"][job["partner"]] == row
        else:
            held[:, on] += np.stack((gpus, gpus * job["cpus_per_gpu"], gpus * job["memory_mib_per_gpu"]))
    for used, total, free in zip(held, ("gpus", "cpus", "memory_mib"), _FREE, strict=True):
        assert (nodes[free] >= 0).all()
        assert (nodes[free] + used == nodes[total]).all()
    for node, expected in enumerate(jobs_on):
        assert sorted(state.node_jobs[node, : nodes["running"][node]].tolist()) == expected
    assert state.leaves["gpus_free"].tolist() == np.bincount(nodes["leaf"], weights=nodes["gpus_free"]).tolist()
    assert tally["gpus_free"] == nodes["gpus_free"].sum()
    idle = jobs["phase"] != RUNNING
    assert (jobs["held"][idle] == 0).all()
    assert (jobs["partner"][idle] == NONE).all()
    assert tally["ended"] <= (jobs["phase"] == ENDED).sum()
    assert (jobs["submit_time"][jobs["phase"] == FUTURE] >= tally["now"]).all()


_FREE = ("gpus_free", "cpus_free", "memory_free_mib")


@contextmanager
def stepping(instants: Sequence[float]) -> Iterator[None]:
    """Let every policy stop at these instants, with little room for segments, and check the books at each."""

    def drive(problem: Problem, state: State, step: Step) -> State:
        state = state._replace(segments=state.segments[: 2 * len(state.running) + 4].copy())
        left = [*sorted(instants), np.inf]
        while True:
            stopped = step(state, left[0])
            check_books(state)
            if stopped == DONE:
                return state
            if stopped == FULL:
                state = with_room(state)
            else:
                left.pop(0)

    with pytest.MonkeyPatch.context() as patch:
        for module in (queue_policy, advised, slurm, rounds, simulated_policy):
            patch.setattr(module, "drive", drive)
        yield


Seen = TypeVar("Seen")


def run_decision(
    trace: Trace,
    cluster: str | Cluster,
    make: Callable[[], Decision],
    options: SimulationOptions = IDEAL,
    seed: int = 0,
    every_s: float = 300.0,
) -> Run:
    """Simulate a decision that no policy makes."""
    made = RoundPolicy(name="made", summary="for a test", make=make, every_s=every_s)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cast("MutableMapping[str, SimulatedPolicy]", POLICIES), "made", made)
        return run_of(trace, cluster, "made", options, seed)


def run_watched(
    trace: Trace,
    cluster: str | Cluster,
    policy: str,
    look: Decision,
    options: SimulationOptions = IDEAL,
    seed: int = 0,
) -> Run:
    """Simulate a round policy and look at the cluster after each of its decisions."""
    original = POLICIES[policy]
    assert isinstance(original, RoundPolicy)

    def make() -> Decision:
        decide = original.make()

        def watched(view: RoundView) -> None:
            decide(view)
            look(view)

        return watched

    return run_decision(trace, cluster, make, options, seed, original.every_s)


def run_script(
    trace: Trace, cluster: str | Cluster, script: Mapping[float, Decision], options: SimulationOptions = IDEAL
) -> Run:
    """Simulate decisions at given instants; at all others every job gets what it asks, the first submitted first."""

    def decide(view: RoundView) -> None:
        script.get(view.now, start_all)(view)
        check_view(view)

    return run_decision(trace, cluster, lambda: decide, options)


def start_all(view: RoundView) -> None:
    """Start every pending job that fits."""
    view.serve(view.pending, view.jobs["gpus"][view.pending])


def seen_at_first(
    trace: Trace, cluster: str | Cluster, look: Callable[[RoundView], Seen], options: SimulationOptions = IDEAL
) -> Seen:
    """Return what is seen before the first decision of a run."""
    seen: list[Seen] = []

    def decide(view: RoundView) -> None:
        seen.append(look(view))
        start_all(view)

    run_decision(trace, cluster, lambda: decide, options)
    return seen[0]


def sizes_of(run: Run) -> list[list[int]]:
    """List the GPUs that every job held, one stretch of time after the other."""
    stretches = run.segments[np.argsort(run.segments["start_time"], kind="stable")]
    return [stretches["gpus"][stretches["job"] == row].tolist() for row in range(len(run.trace))]


def check_view(view: RoundView) -> None:
    """Fail where the books are wrong, a job has a size that it cannot have, or two jobs that share do not agree."""
    state, jobs = view.state, view.jobs
    check_books(state)
    assert len(view.running) == state.tally["running"][0] and len(view.pending) == state.tally["pending"][0]
    for row in view.running:
        job = jobs[row]
        span = slice(job["pool"], job["pool"] + job["span"])
        nodes, gpus = state.held_nodes[span], state.held_gpus[span]
        assert job["gpus_min"] <= job["held"] <= job["gpus_max"]
        assert (state.nodes["is_up"][nodes] == 1).all()
        if job["partner"] != NONE:
            partner = jobs[job["partner"]]
            theirs = slice(partner["pool"], partner["pool"] + partner["span"])
            assert partner["phase"] == RUNNING and partner["partner"] == row
            assert partner["is_guest"] + job["is_guest"] == 1
            assert (state.held_nodes[theirs] == nodes).all() and (state.held_gpus[theirs] == gpus).all()
