"""Look into a run of a round policy: what it sees, and whether the books are right after every decision."""

from collections.abc import Callable, Mapping, MutableMapping
from typing import TypeVar, cast

import numpy as np
import pytest

from advisor.sim.cluster import Cluster
from advisor.sim.policies import POLICIES
from advisor.sim.policies.rounds import Decision, RoundPolicy, RoundView
from advisor.sim.run_outcome import Run
from advisor.sim.simulated_policy import SimulatedPolicy, SimulationOptions
from advisor.sim.state import NONE, RUNNING
from advisor.sim.traces.trace import Trace
from tests.sim import stepping
from tests.sim.building import IDEAL, run_of

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
        check_books(view)

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


def check_books(view: RoundView) -> None:
    """Fail where the books are wrong, a job has a size that it cannot have, or two jobs that share do not agree."""
    state, jobs = view.state, view.jobs
    stepping.check_books(state)
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
