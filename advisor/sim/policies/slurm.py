"""Slurm on its own: multifactor priority, the main pass and backfill, alone or with its line changed in between."""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.sim.simulated_policy import Problem, drive, leave_out
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import pick_now, run_slurm
from advisor.sim.state import State, number_shapes


def hold_to_fewest(state: State) -> None:
    """Let gangs that leave their node count open have no more nodes than they need, as `pin_gangs` in Lua does.

    A gang whose CPUs or memory would not fit there is left alone.
    """
    jobs, nodes = state.jobs, state.nodes
    fewest = jobs["best_nodes"]
    on_node = -(-jobs["gpus"] // np.maximum(fewest, 1))
    cpus = np.maximum(jobs["cpus_per_gpu"] * on_node, jobs["cpus_per_node"])
    memory_mib = np.maximum(jobs["memory_mib_per_gpu"] * on_node, jobs["memory_mib_per_node"])
    fits = (cpus <= nodes["cpus"].max(initial=0)) & (memory_mib <= nodes["memory_mib"].max(initial=0))
    held = (jobs["gpus"] > 1) & (jobs["nodes_max"] == 0) & (jobs["nodes_min"] <= fewest) & fits
    jobs["nodes_max"][held] = fewest[held]
    number_shapes(jobs)


# Runs a loop up to an instant, and returns why it stopped.
Run = Callable[[State, float], int]


def left_alone(_problem: Problem, slurm: Slurm) -> Run:
    """Return the compiled loop."""
    return partial(_run, slurm)


def _run(slurm: Slurm, state: State, until: float) -> int:
    return run_slurm(state, slurm, until)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPolicy:
    """The model of slurmctld; `begin` returns the loop of a run, which may change the line between the passes.

    With `pins`, gangs that leave their node count open are held to the fewest nodes. `parameters` are fields of
    `SlurmParameters` with their values, whatever the cluster says.
    """

    name: str
    summary: str
    begin: Callable[[Problem, Slurm], Run] = left_alone
    pins: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unadvised(self) -> "SlurmPolicy":
        """The same Slurm, the line left alone."""
        return replace(self, begin=left_alone)

    def run(self, problem: Problem) -> State:
        """Run the loop."""
        if self.pins:
            hold_to_fewest(problem.state)
        cluster = replace(problem.cluster, slurm=replace(problem.cluster.slurm, **self.parameters))
        slurm = build_slurm(problem.state, problem.trace, cluster)
        leave_out(problem.state, lambda row: pick_now(problem.state, slurm, row, np.inf))
        return drive(problem, problem.state, self.begin(problem, slurm))


POLICY = SlurmPolicy(name="slurm", summary="plain Slurm: multifactor priority and backfill, no advisor")
# The most that a site gains by its submit script alone.
PIN = SlurmPolicy(name="pin", summary="Slurm with gangs of open node counts on the fewest nodes", pins=True)
