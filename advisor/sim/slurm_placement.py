"""Node selection of the model of Slurm, as observed on slurmctld 22.05 with topology/tree.

A job with a fixed node count that divides its GPUs takes the same number on every node; any other job takes free GPUs
in any numbers. It goes to the leaf with the fewest usable nodes that suffice, and there to the first nodes;
`docs/fidelity.md` has the observations.
"""

from advisor.sim.compiled import compiled, inlined
from advisor.sim.gang_placement import add_to_pick, fits
from advisor.sim.slurm_state import Slurm
from advisor.sim.state import NONE, State


@inlined
def per_node(s: State, row: int) -> int:
    """Return the number of GPUs that a job takes on every node, 0 if it is open."""
    job = s.jobs[row]
    if job["nodes_min"] == job["nodes_max"] or job["gpus"] == 1:
        return int(job["gpus"] // job["nodes_min"]) if job["gpus"] % job["nodes_min"] == 0 else 0
    return 0


@compiled
def pick_now(s: State, m: Slurm, row: int, until: float) -> bool:
    """Pick nodes that are free now and not reserved up to `until`; return False if there are not enough.

    A wait of the job for switches is ignored.
    """
    s.tally[0]["picked"] = 0
    job = s.jobs[row]
    if job["gpus"] > s.tally[0]["gpus_free"]:
        return False
    gpus_each = per_node(s, row)
    if gpus_each == 0:
        together = 0
        for node in range(len(s.nodes)):
            m.share[node] = _usable_gpus(s, m, row, node, until)
            together += m.share[node]
        return together >= job["gpus"] and pick_shares(s, m, row)
    if job["nodes_min"] == 1:
        return _pick_single(s, m, row, gpus_each, until)
    for node in range(len(s.nodes)):
        m.share[node] = gpus_each if is_open(s, m, row, node, gpus_each, until) else 0
    return pick_alike(s, m, gpus_each, job["nodes_min"], len(s.nodes))


@compiled
def leaves_picked(s: State) -> int:
    """Count the leaves of the picked nodes; the nodes of a leaf are adjacent."""
    count = 0
    before = NONE
    for place in range(s.tally[0]["picked"]):
        leaf = s.nodes[s.pick_nodes[place]]["leaf"]
        if leaf != before:
            count += 1
            before = leaf
    return count


@compiled
def pick_alike(s: State, m: Slurm, gpus_each: int, wanted: int, most_leaves: int) -> bool:
    """Pick `wanted` nodes of those with a share, by leaves: the one that just suffices, else the fullest and so on."""
    tally = s.tally[0]
    tally["picked"] = 0
    usable = 0
    for node in range(len(s.nodes)):
        if m.share[node] > 0:
            usable += 1
    if usable < wanted:
        return False
    leaves = 0
    while tally["picked"] < wanted:
        leaf = _next_leaf(s, m, wanted - tally["picked"])
        leaves += 1
        if leaves > most_leaves:
            return False
        first = s.leaves[leaf]["first"]
        for node in range(first, first + s.leaves[leaf]["nodes"]):
            if m.share[node] > 0 and tally["picked"] < wanted:
                add_to_pick(s, node, gpus_each)
            m.share[node] = 0
    return True


@compiled
def pick_shares(s: State, m: Slurm, row: int) -> bool:
    """Pick nodes for a gang whose node count is open: those with most usable GPUs first, until they suffice.

    Nodes with equally many are taken under leaves that are already in use, then leaf by leaf.
    """
    job, tally = s.jobs[row], s.tally[0]
    tally["picked"] = 0
    most = len(s.nodes) if job["nodes_max"] == 0 else job["nodes_max"]
    left = job["gpus"]
    level = min(s.rules[0]["most_gpus"], left)
    m.chosen[:] = 0
    while left > 0 and level > 0 and tally["picked"] < most:
        node = _next_of_level(s, m, level)
        if node == NONE:
            level -= 1
            continue
        m.chosen[node] = 1
        tally["picked"] += 1
        left -= m.share[node]
    if left > 0:
        return False
    return _hand_out(s, m, row)


@compiled
def _hand_out(s: State, m: Slurm, row: int) -> bool:
    """Distribute the GPUs of a gang over its chosen nodes in order, at least one to every node that it needs."""
    job, tally = s.jobs[row], s.tally[0]
    count = tally["picked"]
    tally["picked"] = 0
    left = job["gpus"]
    for node in range(len(s.nodes)):
        if m.chosen[node] == 0:
            continue
        count -= 1
        took = min(m.share[node], left - max(0, min(count, job["nodes_min"] - tally["picked"] - 1)))
        add_to_pick(s, node, took)
        left -= took
    node = 0
    # A gang that must spread further than its GPUs need takes single GPUs elsewhere; one at least is left for each.
    while tally["picked"] < job["nodes_min"] and node < len(s.nodes):
        if m.chosen[node] == 0 and m.share[node] > 0 and _spare_one(s):
            add_to_pick(s, node, 1)
        node += 1
    _sort_pick(s)
    return left == 0 and tally["picked"] >= job["nodes_min"]


@compiled
def _spare_one(s: State) -> bool:
    """Remove a GPU from a picked node that has more than one."""
    for place in range(s.tally[0]["picked"]):
        if s.pick_gpus[place] > 1:
            s.pick_gpus[place] -= 1
            return True
    return False


@compiled
def _sort_pick(s: State) -> None:
    """Sort the picked nodes, which makes those of a leaf adjacent."""
    for place in range(1, s.tally[0]["picked"]):
        node, gpus = s.pick_nodes[place], s.pick_gpus[place]
        at = place
        while at > 0 and s.pick_nodes[at - 1] > node:
            s.pick_nodes[at] = s.pick_nodes[at - 1]
            s.pick_gpus[at] = s.pick_gpus[at - 1]
            at -= 1
        s.pick_nodes[at] = node
        s.pick_gpus[at] = gpus


@inlined
def is_open(s: State, m: Slurm, row: int, node: int, gpus: int, until: float) -> bool:
    """Return whether a node has the GPUs now, and no reservation that begins by `until`."""
    reserved = m.first[node]
    if reserved != NONE and m.reservations[reserved]["start_time"] <= until:
        return False
    return fits(s, row, node, gpus)


@compiled
def _pick_single(s: State, m: Slurm, row: int, gpus: int, until: float) -> bool:
    """Pick the first node under the leaf with the fewest nodes that can hold the job."""
    best = NONE
    least = len(s.nodes) + 1
    for leaf in range(len(s.leaves)):
        if s.leaves[leaf]["gpus_free"] < gpus:
            continue
        first = s.leaves[leaf]["first"]
        usable = 0
        front = NONE
        for node in range(first, first + s.leaves[leaf]["nodes"]):
            if s.nodes[node]["gpus_free"] >= gpus and is_open(s, m, row, node, gpus, until):
                usable += 1
                if front == NONE:
                    front = node
        if 0 < usable < least:
            least = usable
            best = front
    if best == NONE:
        return False
    add_to_pick(s, best, gpus)
    return True


@compiled
def _next_leaf(s: State, m: Slurm, wanted: int) -> int:
    """Return the leaf with the fewest nodes with a share that suffices, else the one with the most."""
    best = NONE
    least = len(s.nodes) + 1
    fullest = 0
    most = -1
    for leaf in range(len(s.leaves)):
        first = s.leaves[leaf]["first"]
        usable = 0
        for node in range(first, first + s.leaves[leaf]["nodes"]):
            if m.share[node] > 0:
                usable += 1
        if wanted <= usable < least:
            best = leaf
            least = usable
        if usable > most:
            fullest = leaf
            most = usable
    return best if best != NONE else fullest


@compiled
def _next_of_level(s: State, m: Slurm, level: int) -> int:
    """Return the next node that gives `level` GPUs: under the leaves of the chosen ones, else leaf by leaf."""
    best = NONE
    least = len(s.nodes) + 1
    for leaf in range(len(s.leaves)):
        first = s.leaves[leaf]["first"]
        front = NONE
        usable = 0
        is_used = False
        for node in range(first, first + s.leaves[leaf]["nodes"]):
            is_used |= m.chosen[node] == 1
            if m.chosen[node] == 0 and m.share[node] == level:
                usable += 1
                if front == NONE:
                    front = node
        if front != NONE and is_used:
            return front
        if front != NONE and usable < least:
            best = front
            least = usable
    return best


@compiled
def _usable_gpus(s: State, m: Slurm, row: int, node: int, until: float) -> int:
    """Return the number of GPUs that a node can give a gang now, no more than it requests."""
    gpus = min(s.nodes[node]["gpus_free"], s.jobs[row]["gpus"])
    while gpus > 0 and not is_open(s, m, row, node, gpus, until):
        gpus -= 1
    return int(gpus)
