"""Multifactor priority of the model of Slurm, with the fair tree, and the line of pending jobs sorted by it."""

import numpy as np

from advisor.sim.compiled import compiled, inlined
from advisor.sim.slurm_placement import per_node
from advisor.sim.slurm_state import Slurm
from advisor.sim.state import State


@inlined
def priority_of(s: State, m: Slurm, row: int, now: float) -> float:
    """Return the priority of a pending job; whole points, at least 1, as Slurm has them."""
    job, control = s.jobs[row], m.control[0]
    age = min(1.0, max(0.0, now - job["submit_time"]) / control["max_age_s"])
    # Without a node count a job asks for one node, and at least for a CPU.
    nodes = (job["nodes_min"] if per_node(s, row) > 0 else 1) / len(s.nodes)
    size = 0.5 * (nodes + max(1, job["gpus"] * job["cpus_per_gpu"]) / control["cluster_cpus"])
    points = (
        control["weight_age"] * age
        + control["weight_fairshare"] * m.associations[m.association[row]]["factor"]
        + control["weight_size"] * size
        + control["weight_qos"] * m.qos_factor[job["qos"]]
    )
    return max(1.0, np.floor(points - job["nice"]))


@compiled
def insert(s: State, m: Slurm, row: int) -> None:
    """Insert a job into the line by priority; equal priorities are ordered by submit time and id."""
    pending = s.tally[0]["pending"]
    low, high = 0, pending
    while low < high:
        middle = (low + high) // 2
        if _stands_before(s, m.line[middle], row):
            low = middle + 1
        else:
            high = middle
    for place in range(pending, low, -1):
        m.line[place] = m.line[place - 1]
    m.line[low] = row
    s.tally[0]["pending"] = pending + 1


@compiled
def strike(s: State, m: Slurm, place: int) -> None:
    """Remove the job at a place from the line; the caller updates the count of pending jobs."""
    for at in range(place, s.tally[0]["pending"] - 1):
        m.line[at] = m.line[at + 1]


@compiled
def reprioritise(s: State, m: Slurm, now: float) -> bool:
    """Recalculate the priority of every pending job and sort the line; return whether that changed the order."""
    for place in range(s.tally[0]["pending"]):
        row = m.line[place]
        s.jobs[row]["priority"] = priority_of(s, m, row, now)
    return sort_line(s, m)


@compiled
def sort_line(s: State, m: Slurm) -> bool:
    """Sort the line by priority; return whether that changed it."""
    pending = s.tally[0]["pending"]
    is_sorted = True
    for place in range(1, pending):
        if not _stands_before(s, m.line[place - 1], m.line[place]):
            is_sorted = False
            break
    if is_sorted:
        return False
    # One number for priority and row: both are whole, and their product is far below what a float holds exactly.
    keys = np.empty(pending)
    for place in range(pending):
        row = m.line[place]
        keys[place] = row - s.jobs[row]["priority"] * len(s.jobs)
    m.line[:pending] = m.line[:pending][np.argsort(keys)]
    return True


@compiled
def charge(s: State, m: Slurm, row: int, now: float) -> None:
    """Charge the use of a running job since its last charge to its user and account, in whole seconds as in Slurm."""
    since = max(m.charged_time[row], s.jobs[row]["since_time"])
    if now > since:
        used = (np.floor(now) - np.floor(since)) * s.jobs[row]["held"]
        association = m.associations[m.association[row]]
        association["usage"] += used
        m.account_usage[association["account"]] += used
        m.charged_time[row] = now


@compiled
def recalculate(s: State, m: Slurm, now: float) -> None:
    """Charge the running jobs, decay all usage, the new included, and rank the users."""
    control = m.control[0]
    passed = now - control["calc_time"]
    control["calc_time"] = now
    for place in range(s.tally[0]["running"]):
        charge(s, m, s.running[place], now)
    # Slurm's own approximation of the half-life.
    fading = 1.0 if control["half_life_s"] <= 0.0 else (1.0 - 0.693 / control["half_life_s"]) ** passed
    for row in range(len(m.associations)):
        m.associations[row]["usage"] *= fading
    for account in range(len(m.account_usage)):
        m.account_usage[account] *= fading
    if control["weight_fairshare"] > 0.0:
        _fair_tree(m)


@compiled
def _fair_tree(m: Slurm) -> None:
    """Rank accounts, and within them users, by use over shares, least first; the users of an account have equal shares.

    The factor follows from the rank as in Slurm's fair tree: 1 for the first user, then lower by one part in the
    number of users. The first is root, who uses nothing. Users with the same use of the same account share a rank, and
    users without use in an account without use share that of root.
    """
    count = len(m.associations)
    order = np.arange(count)
    for place in range(1, count):
        row = order[place]
        at = place
        while at > 0 and _uses_less(m, row, order[at - 1]):
            order[at] = order[at - 1]
            at -= 1
        order[at] = row
    rank = count + 1
    for place in range(count):
        association = m.associations[order[place]]
        tied = m.account_usage[association["account"]] == 0.0
        if place > 0 and not tied:
            before = m.associations[order[place - 1]]
            tied = before["account"] == association["account"] and before["usage"] == association["usage"]
        if not tied:
            rank = count - place
        association["factor"] = rank / (count + 1)


@compiled
def _uses_less(m: Slurm, one: int, other: int) -> bool:
    first, second = m.associations[one], m.associations[other]
    if first["account"] != second["account"]:
        mine = m.account_usage[first["account"]] / m.account_shares[first["account"]]
        theirs = m.account_usage[second["account"]] / m.account_shares[second["account"]]
        return mine < theirs or (mine == theirs and first["account"] < second["account"])
    return bool(first["usage"] < second["usage"])


@inlined
def _stands_before(s: State, one: int, other: int) -> bool:
    first, second = s.jobs[one]["priority"], s.jobs[other]["priority"]
    return first > second or (first == second and one < other)
