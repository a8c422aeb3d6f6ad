"""Backfill as in slurmctld: every tested job reserves whole nodes, and no job delays a reservation before it.

Every pass makes its reservations in the order of the line. Running jobs are expected to end at their limits. Their
ends are examined in groups that grow with the distance, as in slurmctld; `docs/fidelity.md` has the observations.
"""

import numpy as np

from advisor.domain.units import YEAR_S
from advisor.sim.compiled import compiled, inlined
from advisor.sim.execution import start
from advisor.sim.priority import strike
from advisor.sim.slurm_placement import leaves_picked, per_node, pick_alike, pick_now, pick_shares
from advisor.sim.slurm_state import Slurm
from advisor.sim.state import NONE, State

_GROUP_S = 30.0


@compiled
def backfill_pass(s: State, m: Slurm, now: float) -> None:
    """Start every job of the line that delays no reservation of an earlier job.

    The pass ends when no later job can start now: their reservations would change nothing.
    """
    control = m.control[0]
    control["backfill_time"] = now
    control["backfill_due_time"] = np.inf
    m.first[:] = NONE
    control["reservations"] = 0
    _measure_room(s, m)
    place = 0
    left = min(s.tally[0]["pending"], control["bf_depth"])  # jobs still to be tested
    while True:
        while left > 0 and not _may_start(s, m, m.line[place + left - 1], now):
            left -= 1
        if left == 0:
            break
        left -= 1
        row = m.line[place]
        limit_s = planned_limit_s(s, m, row)
        may_start = _may_start(s, m, row, now)
        if may_start and pick_now(s, m, row, now + limit_s) and not waits_for_switches(s, m, row, now):
            launch(s, m, place, now)
            _measure_room(s, m)
            continue
        place += 1
        if control["reservations"] + len(s.nodes) > len(m.reservations):
            continue
        begin = _earliest(s, m, row, now, limit_s)
        if begin < np.inf and _reserve(s, m, begin, begin + limit_s):
            _measure_room(s, m)
    m.first[:] = NONE


@compiled
def launch(s: State, m: Slurm, place: int, now: float) -> None:
    """Start the job at a place of the line on the picked nodes."""
    row = m.line[place]
    strike(s, m, place)
    s.jobs[row]["watch_time"] = np.inf
    start(s, row, now)
    mark_stale(s, m, row)


@compiled
def mark_stale(s: State, m: Slurm, row: int) -> None:
    """Mark the expected ends on the nodes of a job as changed."""
    job = s.jobs[row]
    for at in range(job["pool"], job["pool"] + job["span"]):
        m.stale[s.held_nodes[at]] = 1


@inlined
def planned_limit_s(s: State, m: Slurm, row: int) -> float:
    """Return the run time that backfill assumes for a job."""
    job = s.jobs[row]
    if m.control[0]["soft_limits"] and job["soft_limit_s"] > 0.0:
        return min(job["soft_limit_s"], job["limit_s"])
    return min(job["limit_s"], YEAR_S)


@compiled
def switch_wait_ends(s: State, m: Slurm, row: int) -> float:
    """Return when the wait of a job for few switches ends; its clock starts once, at the first request for them."""
    job = s.jobs[row]
    return m.switches_time[row] + min(job["switches_wait_s"], m.control[0]["max_switch_wait_s"])


@compiled
def waits_for_switches(s: State, m: Slurm, row: int, now: float) -> bool:
    """Return whether a job still waits for fewer leaves than the picked nodes span."""
    job = s.jobs[row]
    return 0 < job["switches"] < leaves_picked(s) and now < switch_wait_ends(s, m, row)


@compiled
def _measure_room(s: State, m: Slurm) -> None:
    """Count the nodes with at least 1, 2, ... free GPUs, and find how long one of them stays unreserved."""
    most = len(m.fitting) - 2
    m.fitting[:] = 0
    m.open_until[:] = -np.inf
    for node_row in range(len(s.nodes)):
        node = s.nodes[node_row]
        free = node["gpus_free"]
        if free == 0 or node["is_up"] == 0:
            continue
        m.fitting[free] += 1
        first = m.first[node_row]
        until = np.inf if first == NONE else m.reservations[first]["start_time"]
        m.open_until[free] = max(m.open_until[free], until)
    for free in range(most - 1, 0, -1):
        m.fitting[free] += m.fitting[free + 1]
        m.open_until[free] = max(m.open_until[free], m.open_until[free + 1])


@inlined
def _may_start(s: State, m: Slurm, row: int, now: float) -> bool:
    """Return whether a job could start now; one that cannot start now cannot start later in the same pass."""
    job = s.jobs[row]
    if job["gpus"] > s.tally[0]["gpus_free"]:
        return False
    gpus_each = per_node(s, row)
    until = now + planned_limit_s(s, m, row)
    if gpus_each == 0:
        return m.open_until[1] >= until
    return gpus_each < len(m.fitting) and m.fitting[gpus_each] >= job["nodes_min"] and m.open_until[gpus_each] >= until


@compiled
def _expected_end(s: State, m: Slurm, row: int, now: float) -> float:
    job = s.jobs[row]
    hard = job["since_time"] + min(job["limit_s"], YEAR_S)
    if m.control[0]["soft_limits"] == 0 or job["soft_limit_s"] <= 0.0:
        return hard
    soft = job["since_time"] + job["soft_limit_s"]
    # Past its soft limit a job is planned with half of what is left.
    return min(hard, soft) if now < soft else now + 0.5 * (hard - now)


@compiled
def _plan_node(s: State, m: Slurm, node_row: int, now: float) -> None:
    """Sort the expected ends of the jobs of a node, with the GPUs that are free from each end on."""
    m.stale[node_row] = 0
    node = s.nodes[node_row]
    count = node["running"]
    for place in range(count):
        row = s.node_jobs[node_row, place]
        when = _expected_end(s, m, row, now)
        gpus = 0
        job = s.jobs[row]
        for at in range(job["pool"], job["pool"] + job["span"]):
            if s.held_nodes[at] == node_row:
                gpus = s.held_gpus[at]
        at = place
        while at > 0 and m.ends[node_row, at - 1] > when:
            m.ends[node_row, at] = m.ends[node_row, at - 1]
            m.freed[node_row, at] = m.freed[node_row, at - 1]
            at -= 1
        m.ends[node_row, at] = when
        m.freed[node_row, at] = gpus
    free = node["gpus_free"]
    for place in range(count):
        free += m.freed[node_row, place]
        m.freed[node_row, place] = free


@inlined
def _suits(s: State, row: int, node_row: int) -> bool:
    job, node = s.jobs[row], s.nodes[node_row]
    return node["is_up"] == 1 and (job["gpu_type"] == NONE or job["gpu_type"] == node["gpu_type"])


@inlined
def _free_from(s: State, m: Slurm, row: int, node_row: int, gpus: int, now: float) -> float:
    """Return when a planned node first has the GPUs free, ignoring reservations; infinity for never."""
    node = s.nodes[node_row]
    if not _suits(s, row, node_row) or node["gpus"] < gpus:
        return np.inf
    if node["gpus_free"] >= gpus:
        return now
    if m.control[0]["soft_limits"] == 1:
        _plan_node(s, m, node_row, now)
    for place in range(node["running"]):
        if m.freed[node_row, place] >= gpus:
            return max(now, m.ends[node_row, place])
    return np.inf


@inlined
def _is_reserved(m: Slurm, node_row: int, begin: float, until: float) -> bool:
    """Return whether a reservation of a node overlaps an interval."""
    reservation = m.first[node_row]
    while reservation != NONE and m.reservations[reservation]["start_time"] <= until:
        if m.reservations[reservation]["end_time"] > begin:
            return True
        reservation = m.reservations[reservation]["next"]
    return False


@compiled
def _earliest(s: State, m: Slurm, row: int, now: float, limit_s: float) -> float:
    """Return the start that backfill expects for a job, and pick its nodes; infinity if beyond the window."""
    gpus_each = per_node(s, row)
    job = s.jobs[row]
    most_leaves = len(s.leaves)
    if job["switches"] > 0 and now < switch_wait_ends(s, m, row):
        most_leaves = job["switches"]
    last = now + m.control[0]["bf_window_s"]
    at = now
    while at <= last:
        for node in range(len(s.nodes)):
            m.ready[node] = np.inf
            if not _is_reserved(m, node, at, at + limit_s):
                if m.stale[node] == 1:
                    _plan_node(s, m, node, now)
                m.ready[node] = _free_from(s, m, row, node, max(gpus_each, 1), now)
        begin = _first_group(s, m, row, gpus_each, now, most_leaves)
        if begin == np.inf:
            at = _next_slot(m, at)
            continue
        begin = max(begin, at)
        if begin == at or not _meets_reservation(s, m, begin, begin + limit_s):
            return begin if begin <= last else np.inf
        at = begin
    return np.inf


@compiled
def _meets_reservation(s: State, m: Slurm, begin: float, until: float) -> bool:
    """Return whether any picked node is reserved in an interval."""
    for place in range(s.tally[0]["picked"]):
        if _is_reserved(m, s.pick_nodes[place], begin, until):
            return True
    return False


@compiled
def _next_slot(m: Slurm, at: float) -> float:
    """Return the first end of a reservation after an instant; infinity if there is none."""
    following = np.inf
    for reservation in range(m.control[0]["reservations"]):
        when = m.reservations[reservation]["end_time"]
        if at < when < following:
            following = when
    return following


@compiled
def _first_group(s: State, m: Slurm, row: int, gpus_each: int, now: float, most_leaves: int) -> float:
    """Return when a job fits the ready nodes if jobs end by their limits, group by group, and pick its nodes."""
    wanted = s.jobs[row]["nodes_min"]
    if gpus_each == 0:
        wanted = 1
    enough = _nth_ready(m, wanted)
    if enough == np.inf:
        return np.inf
    if enough <= now and _fits_at(s, m, row, gpus_each, wanted, now, most_leaves):
        return now
    first, last = _ends(s, m, now)
    step = _GROUP_S
    bound = (np.floor(first / _GROUP_S) + 2.0) * _GROUP_S
    while True:
        if bound >= enough:
            when = _last_end(s, m, now, bound)
            if _fits_at(s, m, row, gpus_each, wanted, when, most_leaves):
                return when
            if last <= bound:
                return np.inf
        bound += step
        step *= 2.0


@compiled
def _fits_at(s: State, m: Slurm, row: int, gpus_each: int, wanted: int, when: float, most_leaves: int) -> bool:
    """Pick nodes that are ready by an instant for a job; return whether they suffice."""
    together = 0
    for node in range(len(s.nodes)):
        m.share[node] = 0
        if m.ready[node] <= when:
            m.share[node] = gpus_each if gpus_each > 0 else min(_free_at(s, m, node, when), s.jobs[row]["gpus"])
            together += m.share[node]
    if together < s.jobs[row]["gpus"]:
        return False
    if gpus_each > 0:
        return pick_alike(s, m, gpus_each, wanted, most_leaves)
    return pick_shares(s, m, row) and leaves_picked(s) <= most_leaves


@compiled
def _nth_ready(m: Slurm, wanted: int) -> float:
    """Return the instant by which `wanted` nodes are ready; infinity for never."""
    instant = -np.inf
    while True:
        count = 0
        following = np.inf
        for node in range(len(m.ready)):
            if m.ready[node] <= instant:
                count += 1
            elif m.ready[node] < following:
                following = m.ready[node]
        if count >= wanted:
            return instant
        if following == np.inf:
            return np.inf
        instant = following


@compiled
def _ends(s: State, m: Slurm, now: float) -> tuple[float, float]:
    """Return the first and last expected end of jobs on nodes that can become ready; `now` if there are none."""
    first, last = np.inf, now
    for place in range(s.tally[0]["running"]):
        if _may_be_ready(s, m, s.running[place]):
            when = _expected_end(s, m, s.running[place], now)
            first = min(first, when)
            last = max(last, when)
    return min(first, last), last


@compiled
def _last_end(s: State, m: Slurm, now: float, bound: float) -> float:
    """Return the last expected end up to a bound of running jobs on nodes that can become ready."""
    latest = now
    for place in range(s.tally[0]["running"]):
        if _may_be_ready(s, m, s.running[place]):
            when = _expected_end(s, m, s.running[place], now)
            if when <= bound:
                latest = max(latest, when)
    return latest


@compiled
def _may_be_ready(s: State, m: Slurm, row: int) -> bool:
    """Return whether a running job holds a node that can become ready for the planned job; other ends do not count."""
    job = s.jobs[row]
    for at in range(job["pool"], job["pool"] + job["span"]):
        if m.ready[s.held_nodes[at]] < np.inf:
            return True
    return False


@compiled
def _free_at(s: State, m: Slurm, node_row: int, when: float) -> int:
    """Return the number of GPUs of a node that are free at an instant."""
    free = s.nodes[node_row]["gpus_free"]
    for place in range(s.nodes[node_row]["running"]):
        if m.ends[node_row, place] <= when:
            free = m.freed[node_row, place]
    return int(free)


@compiled
def _reserve(s: State, m: Slurm, begin: float, until: float) -> bool:
    """Reserve the picked nodes as whole nodes for a job of the line; return whether any has free GPUs now."""
    control = m.control[0]
    has_room = False
    resolution = control["bf_resolution_s"]
    begin = np.floor(begin / resolution) * resolution
    until = np.floor(until / resolution) * resolution
    for place in range(s.tally[0]["picked"]):
        node = s.pick_nodes[place]
        has_room |= s.nodes[node]["gpus_free"] > 0
        new = control["reservations"]
        control["reservations"] += 1
        m.reservations[new]["start_time"] = begin
        m.reservations[new]["end_time"] = until
        before = NONE
        reservation = m.first[node]
        while reservation != NONE and m.reservations[reservation]["start_time"] < begin:
            before = reservation
            reservation = m.reservations[reservation]["next"]
        m.reservations[new]["next"] = reservation
        if before == NONE:
            m.first[node] = new
        else:
            m.reservations[before]["next"] = new
    return has_room
