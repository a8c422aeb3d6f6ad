"""Changes pending jobs in the model of slurmctld, as `scontrol update` does, and the nodes that they name."""

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from advisor.domain.actions import SetGpus, SetNice, SetNodeRange, SetSwitches, SetTimeMin
from advisor.domain.units import MINUTE_S
from advisor.sim.node_classes import CLOSED, REQUIRED, USABLE
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import per_node, prioritise, watch_switches
from advisor.sim.state import NONE, PENDING, RUNNING, State

# What the model of slurmctld changes in rollouts.
Modelled = SetNice | SetSwitches | SetNodeRange | SetGpus | SetTimeMin


def update_job(state: State, slurm: Slurm, row: int, action: Modelled) -> None:
    """Change a pending job now; the caller sorts the line and asks for a pass once all changes are made."""
    job, now = state.jobs[row], float(state.tally["now"][0])
    state.tally["changes"] += 1
    match action:
        case SetNice(after=after):
            job["nice"] = after
            # Slurm brings the job's age up to date with it.
            prioritise(state, slurm, row, now)
        case SetSwitches(after=switches):
            job["switches"] = 0 if switches is None else switches.count
            longest_s = int(slurm.control["max_switch_wait_s"][0])
            job["switches_wait_s"] = 0.0 if switches is None else min(switches.max_wait_s, longest_s)
            if switches is not None:
                slurm.switches_time[row] = min(slurm.switches_time[row], now)
            watch_switches(state, slurm, row, now)
        case SetNodeRange(after=nodes):
            job["nodes_min"], job["nodes_max"] = nodes.low, nodes.high
            job["shape"] = NONE
        case SetGpus(after=size):
            gpus = size.count
            if action.changes_limit:
                job["limit_s"] = size.time_limit_s
            job["gpus"] = gpus * job["nodes_min"] if per_node(state, row) else gpus
            job["resizes"] += 1
            job["shape"] = NONE
        case SetTimeMin(after=soft_s):
            # Slurm counts it in minutes.
            job["soft_limit_s"] = 0.0 if soft_s is None else math.ceil(soft_s / MINUTE_S) * MINUTE_S


# Rows of `usable` for lists that are out. A job keeps its row while it runs: it is requeued with its list.
ROOM: Final = 256


def with_room_for_lists(state: State) -> State:
    """Return the state with rows of `usable` for lists of nodes, behind those of the trace."""
    rows = np.zeros((ROOM, len(state.nodes)), np.int8)
    return state._replace(usable=np.concatenate((state.usable, rows)))


class NodeLists:
    """The nodes that jobs name; `named_in_trace` returns those that a row of the trace names."""

    def __init__(self, state: State, names: Sequence[str], named_in_trace: Callable[[int], tuple[str, ...]]) -> None:
        """Note what the jobs ask for; the rows of `usable` that no job of the trace needs are for lists."""
        self._names = names
        self._row_by_name = {name: row for row, name in enumerate(names)}
        self._named_in_trace = named_in_trace
        self._own = state.jobs[["node_class", "required"]].copy()
        self._first = int(state.jobs["node_class"].max(initial=NONE)) + 1

    def is_changed(self, state: State, row: int) -> bool:
        """Return whether a job names other nodes than in the trace."""
        return bool(state.jobs["node_class"][row] != self._own["node_class"][row])

    def named(self, state: State, row: int) -> tuple[str, ...]:
        """Return the nodes that a job names."""
        if not self.is_changed(state, row):
            return self._named_in_trace(row)
        required = state.usable[state.jobs["node_class"][row]] == REQUIRED
        return tuple(self._names[node] for node in np.flatnonzero(required).tolist())

    def write(self, state: State, row: int, nodes: Sequence[str]) -> bool:
        """Let a job name nodes; return False if it cannot use one of them, or no row of `usable` is left."""
        job, own = state.jobs[row], self._own[row]
        if set(nodes) == set(self._named_in_trace(row)):
            job["node_class"], job["required"], job["shape"] = own["node_class"], own["required"], NONE
            return True
        wanted = [self._row_by_name.get(name, NONE) for name in nodes]
        in_trace = np.ones(len(self._names), np.int8)
        if own["node_class"] != NONE:
            in_trace = np.where(state.usable[own["node_class"]] == CLOSED, CLOSED, USABLE).astype(np.int8)
        free = self._free(state, row)
        if NONE in wanted or (in_trace[wanted] == CLOSED).any() or free is None:
            return False
        in_trace[wanted] = REQUIRED
        state.usable[free] = in_trace
        job["node_class"], job["required"], job["shape"] = free, len(wanted), NONE
        return True

    def _free(self, state: State, row: int) -> int | None:
        """Return a row of `usable` for a list of a job: the one that it has, or one that no other job uses."""
        classes = state.jobs["node_class"]
        if classes[row] >= self._first:
            return int(classes[row])
        is_alive = (state.jobs["phase"] == PENDING) | (state.jobs["phase"] == RUNNING)
        used = set(classes[is_alive & (classes >= self._first)].tolist())
        return next((code for code in range(self._first, len(state.usable)) if code not in used), None)
