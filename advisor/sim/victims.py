"""Choose the running jobs to preempt so that a job fits."""

import numpy as np
from numpy.typing import NDArray

from advisor.sim.compiled import compiled
from advisor.sim.gang_placement import usable_gpus
from advisor.sim.state import NONE, State


@compiled
def make_room(s: State, victims: NDArray[np.int32], costs: NDArray[np.float64], row: int, key: float) -> int:
    """List running jobs with a key above `key` to preempt so that a job fits; return how many, 0 if none help.

    For one node these are the jobs with the highest keys on the node where others lose the fewest GPUs; for several
    nodes they are all jobs of the nodes where others lose the fewest.
    """
    job = s.jobs[row]
    free = s.tally[0]["gpus_free"]
    for place in range(s.tally[0]["running"]):
        other = s.jobs[s.running[place]]
        if other["key"] > key:
            free += other["held"]
    if free < job["gpus"]:
        return 0
    if job["gpus"] <= job["node_gpus"]:
        return _on_one_node(s, victims, row, key)
    return _on_whole_nodes(s, victims, costs, row, key, 0, len(s.nodes))


@compiled
def make_room_close(s: State, victims: NDArray[np.int32], costs: NDArray[np.float64], row: int, key: float) -> int:
    """List as `make_room` does, but for a gang over several nodes under the cheapest leaf where it fits."""
    job = s.jobs[row]
    if job["gpus"] <= job["node_gpus"] or job["best_nodes"] > s.rules[0]["leaf_nodes"]:
        return make_room(s, victims, costs, row, key)
    best = NONE
    least = np.inf
    for leaf_row in range(len(s.leaves)):
        first, last = s.leaves[leaf_row]["first"], s.leaves[leaf_row]["first"] + s.leaves[leaf_row]["nodes"]
        count = _on_whole_nodes(s, victims, costs, row, key, first, last)
        cost = 0.0
        for place in range(count):
            cost += s.jobs[victims[place]]["held"]
        if count > 0 and cost < least:
            best = leaf_row
            least = cost
    if best == NONE:
        return 0
    first, last = s.leaves[best]["first"], s.leaves[best]["first"] + s.leaves[best]["nodes"]
    return _on_whole_nodes(s, victims, costs, row, key, first, last)


@compiled
def make_room_anywhere(s: State, victims: NDArray[np.int32], row: int, key: float) -> int:
    """List as `make_room` does, but for a gang that takes GPUs on any nodes: the highest keys go first."""
    job = s.jobs[row]
    free = 0
    for node_row in range(len(s.nodes)):
        free += usable_gpus(s, row, node_row)
    count = 0
    while free < job["gpus"]:
        worst = _next_victim(s, s.running[: s.tally[0]["running"]], victims[:count], key, row)
        if worst == NONE:
            return 0
        victims[count] = worst
        count += 1
        free += s.jobs[worst]["held"]
    return count


@compiled
def _on_one_node(s: State, victims: NDArray[np.int32], row: int, key: float) -> int:
    job = s.jobs[row]
    best = NONE
    least = np.inf
    for node_row in range(len(s.nodes)):
        if not _could_fit(s, row, node_row, job["gpus"]):
            continue
        count = _victims_on(s, victims, node_row, key, job["gpus"])
        if count == 0:
            continue
        cost = 0.0
        for place in range(count):
            cost += s.jobs[victims[place]]["held"]
        if cost < least:
            best = node_row
            least = cost
    return 0 if best == NONE else _victims_on(s, victims, best, key, job["gpus"])


@compiled
def _could_fit(s: State, row: int, node_row: int, gpus: int) -> bool:
    """Return whether a node could hold a part of a gang if it were empty."""
    job, node = s.jobs[row], s.nodes[node_row]
    return (
        node["gpus"] >= gpus
        and node["is_up"] == 1
        and (job["gpu_type"] == NONE or job["gpu_type"] == node["gpu_type"])
        and node["cpus"] >= gpus * job["cpus_per_gpu"]
        and node["memory_mib"] >= gpus * job["memory_mib_per_gpu"]
    )


@compiled
def _victims_on(s: State, victims: NDArray[np.int32], node_row: int, key: float, gpus: int) -> int:
    """List the jobs of a node with the highest keys above `key`, until `gpus` are free there; 0 if too few are."""
    node = s.nodes[node_row]
    free = node["gpus_free"]
    count = 0
    while free < gpus:
        worst = _next_victim(s, s.node_jobs[node_row, : node["running"]], victims[:count], key, NONE)
        if worst == NONE:
            return 0
        victims[count] = worst
        count += 1
        free += _held_on(s, worst, node_row)
    return count


@compiled
def _next_victim(s: State, others: NDArray[np.int32], listed: NDArray[np.int32], key: float, row: int) -> int:
    """Return the job with the highest key above `key` that is not listed; NONE if there is none.

    Unless `row` is NONE, only jobs on nodes that could hold a part of the gang in `row` count.
    """
    worst = NONE
    for other in others:
        if s.jobs[other]["key"] <= key or _is_listed(listed, other):
            continue
        if row != NONE and not _could_fit(s, row, s.held_nodes[s.jobs[other]["pool"]], 1):
            continue
        if worst == NONE or _goes_before(s, other, worst):
            worst = other
    return worst


@compiled
def _goes_before(s: State, one: int, other: int) -> bool:
    first, second = s.jobs[one]["key"], s.jobs[other]["key"]
    return first > second or (first == second and one > other)


@compiled
def _is_listed(victims: NDArray[np.int32], row: int) -> bool:
    for victim in victims:
        if victim == row:
            return True
    return False


@compiled
def _held_on(s: State, row: int, node_row: int) -> int:
    job = s.jobs[row]
    for place in range(job["span"]):
        if s.held_nodes[job["pool"] + place] == node_row:
            return int(s.held_gpus[job["pool"] + place])
    return 0


@compiled
def _on_whole_nodes(
    s: State, victims: NDArray[np.int32], costs: NDArray[np.float64], row: int, key: float, first: int, last: int
) -> int:
    """Empty the nodes from `first` up to `last` that are cheapest to empty."""
    job = s.jobs[row]
    for node_row in range(first, last):
        costs[node_row] = _cost_of_emptying(s, row, node_row, key)
    count = 0
    left = job["gpus"]
    while left > 0:
        best = NONE
        for node_row in range(first, last):
            if costs[node_row] < np.inf and (best == NONE or costs[node_row] < costs[best]):
                best = node_row
        if best == NONE:
            return 0
        costs[best] = np.inf
        left -= s.nodes[best]["gpus"]
        for place in range(s.nodes[best]["running"]):
            other = s.node_jobs[best, place]
            if not _is_listed(victims[:count], other):
                victims[count] = other
                count += 1
    return count


@compiled
def _cost_of_emptying(s: State, row: int, node_row: int, key: float) -> float:
    """Return the GPUs that others lose if a node is emptied; infinity if it cannot be."""
    node = s.nodes[node_row]
    if not _could_fit(s, row, node_row, node["gpus"]):
        return np.inf
    cost = 0.0
    for place in range(node["running"]):
        other = s.jobs[s.node_jobs[node_row, place]]
        if other["key"] <= key:
            return np.inf
        cost += other["held"]
    return cost
