"""Changes the nodes that pending jobs name in the model of slurmctld: `ReqNodeList=` of `scontrol update`."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from advisor.sim.node_classes import CLOSED, REQUIRED, USABLE
from advisor.sim.state import NONE, PENDING, RUNNING, State

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
