"""Gang placement: pick nodes for policies that place jobs themselves.

A pick is stored in the first `picked` entries of `pick_nodes` and `pick_gpus`, the nodes of a leaf adjacent. No GPU
is allocated until the job starts.
"""

from advisor.sim.compiled import compiled, inlined
from advisor.sim.state import NONE, State


@compiled
def pick(s: State, row: int, gpus: int) -> bool:
    """Pick the fewest nodes for a gang, under as few leaves as possible; return False if they are not free.

    A gang that fits one node takes the fullest that holds it, so that large gaps stay whole; a larger gang takes idle
    nodes, and for the rest the fullest node that holds it. Ties go to the first node.
    """
    s.tally[0]["picked"] = 0
    if gpus > s.tally[0]["gpus_free"]:
        return False
    if gpus <= s.jobs[row]["node_gpus"]:
        return _pick_one(s, row, gpus)
    return _pick_whole(s, row, gpus)


@compiled
def pick_leaf(s: State, row: int, gpus: int) -> bool:
    """Pick free GPUs on as few nodes as possible under the leaf with the fewest that suffice."""
    s.tally[0]["picked"] = 0
    best = NONE
    least = 0
    for leaf in range(len(s.leaves)):
        if s.leaves[leaf]["gpus_free"] < gpus or (best != NONE and s.leaves[leaf]["gpus_free"] >= least):
            continue
        if _usable_under(s, row, leaf) >= gpus:
            best = leaf
            least = s.leaves[leaf]["gpus_free"]
    if best == NONE:
        return False
    return _pick_fullest_parts(s, row, best, gpus) == 0


@compiled
def pick_anywhere(s: State, row: int, gpus: int) -> bool:
    """Pick free GPUs under any leaves, beginning with the leaf that has the most."""
    s.tally[0]["picked"] = 0
    if gpus > s.tally[0]["gpus_free"]:
        return False
    return _pick_leaf_by_leaf(s, row, gpus, False) == 0


@compiled
def usable_gpus(s: State, row: int, node_row: int) -> int:
    """Return the number of GPUs of a node that a part of a gang could use."""
    job, node = s.jobs[row], s.nodes[node_row]
    if node["is_up"] == 0 or (job["gpu_type"] != NONE and job["gpu_type"] != node["gpu_type"]):
        return 0
    usable = node["gpus_free"]
    if job["cpus_per_gpu"] > 0:
        usable = min(usable, node["cpus_free"] // job["cpus_per_gpu"])
    if job["memory_mib_per_gpu"] > 0:
        usable = min(usable, node["memory_free_mib"] // job["memory_mib_per_gpu"])
    return usable


@compiled
def _usable_under(s: State, row: int, leaf_row: int) -> int:
    leaf = s.leaves[leaf_row]
    usable = 0
    if leaf["gpus_free"] == 0:
        return 0
    for node in range(leaf["first"], leaf["first"] + leaf["nodes"]):
        usable += usable_gpus(s, row, node)
    return usable


@compiled
def _pick_fullest_parts(s: State, row: int, leaf_row: int, gpus: int) -> int:
    """Add parts of a leaf's nodes to the pick, largest first and the smallest last; return the GPUs still missing."""
    leaf = s.leaves[leaf_row]
    left = gpus
    while left > 0:
        best = NONE
        most = 0
        for node in range(leaf["first"], leaf["first"] + leaf["nodes"]):
            usable = usable_gpus(s, row, node)
            if usable == 0 or _is_picked(s, node):
                continue
            closer = usable < most if usable >= left and most >= left else usable > most
            if closer:
                best = node
                most = usable
        if best == NONE:
            break
        took = min(most, left)
        add_to_pick(s, best, took)
        left -= took
    return left


@inlined
def fits(s: State, row: int, node_row: int, gpus: int) -> bool:
    """Return whether a node has the GPUs, CPUs and memory for a part of a gang."""
    job, node = s.jobs[row], s.nodes[node_row]
    return (
        node["gpus_free"] >= gpus
        and node["is_up"] == 1
        and (job["gpu_type"] == NONE or job["gpu_type"] == node["gpu_type"])
        and node["cpus_free"] >= gpus * job["cpus_per_gpu"]
        and node["memory_free_mib"] >= gpus * job["memory_mib_per_gpu"]
    )


@compiled
def add_to_pick(s: State, node_row: int, gpus: int) -> None:
    """Append a node to the pick."""
    tally = s.tally[0]
    s.pick_nodes[tally["picked"]] = node_row
    s.pick_gpus[tally["picked"]] = gpus
    tally["picked"] += 1


@compiled
def _pick_one(s: State, row: int, gpus: int) -> bool:
    best = NONE
    least = s.rules[0]["most_gpus"] + 1
    for node in range(len(s.nodes)):
        free = s.nodes[node]["gpus_free"]
        if gpus <= free < least and fits(s, row, node, gpus):
            best = node
            least = free
            if free == gpus:
                break
    if best == NONE:
        return False
    add_to_pick(s, best, gpus)
    return True


@compiled
def _idle_gpus(s: State, row: int, node_row: int) -> int:
    """Return the GPUs of a node if it is fully idle and usable by a job, else 0."""
    node = s.nodes[node_row]
    return node["gpus"] if node["gpus_free"] == node["gpus"] and fits(s, row, node_row, node["gpus"]) else 0


@compiled
def _idle_under(s: State, row: int, leaf_row: int) -> int:
    leaf = s.leaves[leaf_row]
    idle = 0
    for node in range(leaf["first"], leaf["first"] + leaf["nodes"]):
        idle += _idle_gpus(s, row, node)
    return idle


@compiled
def _pick_whole(s: State, row: int, gpus: int) -> bool:
    """Pick idle nodes: under the fullest leaf that has enough of them, else beginning with the emptiest leaves."""
    rest = gpus % s.jobs[row]["node_gpus"]
    whole = gpus - rest
    best = NONE
    least = 0
    total = 0
    for leaf in range(len(s.leaves)):
        if s.leaves[leaf]["gpus_free"] == 0:
            continue
        idle = _idle_under(s, row, leaf)
        total += idle
        if idle >= gpus and (best == NONE or idle < least):
            best = leaf
            least = idle
    if total < whole:
        return False
    left = whole
    if best != NONE:
        left -= _pick_under(s, row, best, left)
    else:
        left = _pick_leaf_by_leaf(s, row, left, True)
    if left <= 0 and rest > 0:
        return _add_rest(s, row, rest, best)
    return left <= 0


@compiled
def _pick_under(s: State, row: int, leaf_row: int, gpus: int) -> int:
    """Add idle nodes of a leaf to the pick, up to `gpus`; return the GPUs added."""
    leaf = s.leaves[leaf_row]
    added = 0
    for node in range(leaf["first"], leaf["first"] + leaf["nodes"]):
        if added >= gpus:
            break
        idle = _idle_gpus(s, row, node)
        if idle > 0:
            took = min(idle, gpus - added)
            add_to_pick(s, node, took)
            added += took
    return added


@compiled
def _pick_leaf_by_leaf(s: State, row: int, gpus: int, is_idle: bool) -> int:
    """Add nodes to the pick leaf by leaf, the one with most usable GPUs first; return the GPUs still missing.

    Either only fully idle nodes are used, or the free GPUs of any node.
    """
    left = gpus
    before = len(s.nodes) * s.rules[0]["most_gpus"] + 1
    last = NONE
    while left > 0:
        best = NONE
        most = 0
        for leaf in range(len(s.leaves)):
            usable = _idle_under(s, row, leaf) if is_idle else _usable_under(s, row, leaf)
            # Those taken already stand before in the order of (usable GPUs, leaf).
            taken = usable > before or (usable == before and leaf <= last)
            if usable > most and not taken:
                best = leaf
                most = usable
        if best == NONE:
            break
        if is_idle:
            left -= _pick_under(s, row, best, left)
        else:
            left = _pick_fullest_parts(s, row, best, left)
        before = most
        last = best
    return left


@compiled
def _add_rest(s: State, row: int, rest: int, leaf_row: int) -> bool:
    """Add the fullest node that holds the remainder of a gang, if possible under the leaf of the other nodes."""
    best = NONE
    least = s.rules[0]["most_gpus"] + 1
    near = False
    for node in range(len(s.nodes)):
        free = s.nodes[node]["gpus_free"]
        if free < rest or not fits(s, row, node, rest) or _is_picked(s, node):
            continue
        is_near = s.nodes[node]["leaf"] == leaf_row
        if (is_near and not near) or (is_near == near and free < least):
            best = node
            least = free
            near = is_near
    if best == NONE:
        return False
    insert_in_pick(s, best, rest)
    return True


@compiled
def insert_in_pick(s: State, node_row: int, gpus: int) -> None:
    """Insert a node into the pick beside the other nodes of its leaf."""
    leaf = s.nodes[node_row]["leaf"]
    add_to_pick(s, node_row, gpus)
    place = s.tally[0]["picked"] - 1
    last_of_leaf = NONE
    for earlier in range(place):
        if s.nodes[s.pick_nodes[earlier]]["leaf"] == leaf:
            last_of_leaf = earlier
    if last_of_leaf == NONE:
        return
    while place > last_of_leaf + 1:
        s.pick_nodes[place] = s.pick_nodes[place - 1]
        s.pick_gpus[place] = s.pick_gpus[place - 1]
        place -= 1
    s.pick_nodes[place] = node_row
    s.pick_gpus[place] = gpus


@compiled
def _is_picked(s: State, node_row: int) -> bool:
    for place in range(s.tally[0]["picked"]):
        if s.pick_nodes[place] == node_row:
            return True
    return False
