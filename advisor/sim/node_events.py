"""The events of nodes in a run: failures and repairs, drained and resumed nodes, reservations that begin or end."""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from advisor.domain.units import HOUR_S
from advisor.sim.cluster import Cluster, NodeChange, NodeState
from advisor.sim.state import FAULT_DTYPE, State


class NodeEvent(IntEnum):
    """What happens to a node, as stored in `FAULT_DTYPE`; at a LOOK a reservation begins or ends."""

    FAILED = 0
    REPAIRED = 1
    DRAINED = 2
    RESUMED = 3
    LOOK = 4


def draw_faults(state: State, cluster: Cluster, rng: np.random.Generator) -> NDArray[np.void]:
    """Return what happens to nodes, `(n_faults,)`: what the cluster file says, and failures and repairs by chance.

    The latter are drawn up to twice the time in which jobs are submitted.
    """
    return np.array(sorted((*_planned(state, cluster), *_drawn(state, cluster, rng))), FAULT_DTYPE)


def _planned(state: State, cluster: Cluster) -> list[tuple[float, int, int]]:
    """List the changes of nodes that the cluster file names, and the limits of its reservations."""
    begin = float(state.jobs["submit_time"][0])
    row_by_name = {name: row for row, name in enumerate(cluster.node_names)}
    kinds = {NodeChange.DRAINED: NodeEvent.DRAINED, NodeChange.RESUMED: NodeEvent.RESUMED}
    faults = [
        (begin, row, int(NodeEvent.DRAINED))
        for row, group in enumerate(cluster.group_by_node)
        if group.state is NodeState.DRAINED
    ]
    for event in cluster.events:
        faults += [(event.time_s, row_by_name[name], int(kinds[event.state])) for name in event.node_names]
    for each in cluster.reservations:
        faults += [(time_s, 0, int(NodeEvent.LOOK)) for time_s in (each.start_s, each.end_s) if time_s > begin]
    return faults


def _drawn(state: State, cluster: Cluster, rng: np.random.Generator) -> list[tuple[float, int, int]]:
    if cluster.failures.node_mtbf_h == 0.0:
        return []
    begin, last = state.jobs["submit_time"][[0, -1]]
    faults: list[tuple[float, int, int]] = []
    for node in range(len(state.nodes)):
        fault_time = begin
        while True:
            fault_time += rng.exponential(cluster.failures.node_mtbf_h * HOUR_S)
            if fault_time > 2.0 * last - begin:
                break
            faults.append((fault_time, node, int(NodeEvent.FAILED)))
            fault_time += cluster.failures.repair_h * HOUR_S
            faults.append((fault_time, node, int(NodeEvent.REPAIRED)))
    return faults
