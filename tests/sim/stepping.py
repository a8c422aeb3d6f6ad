"""Run a policy in small steps, and look whether the books are right after each."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from advisor.sim import simulated_policy
from advisor.sim.policies import advised, queue_policy, rounds, slurm
from advisor.sim.queueing import DONE, FULL
from advisor.sim.simulated_policy import Problem
from advisor.sim.state import ENDED, FUTURE, NONE, PENDING, RUNNING, State, with_room

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
