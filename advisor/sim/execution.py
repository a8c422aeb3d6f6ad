"""Progress of running jobs: they start and stop, and slow each other down on nodes and links.

A running job reduces `left_s` at its `rate`. Whenever its neighbours change, its progress is booked and its rate is
computed again.
"""

import numpy as np
from numpy.typing import NDArray

from advisor.sim import heap
from advisor.sim.compiled import compiled
from advisor.sim.links import best_gbps, count_sender, slowest_gbps, spine_ratio
from advisor.sim.profiles import exposed_s, gpu_share_inflation, inflation, step_s
from advisor.sim.run_outcome import End
from advisor.sim.state import ENDED, NONE, PENDING, RUNNING, State

FINISHED, TIME_LIMIT = int(End.FINISHED), int(End.TIME_LIMIT)
NODE_TIER, LEAF_TIER, SPINE_TIER = 0, 1, 2


@compiled
def start(s: State, row: int, now: float) -> None:
    """Start a pending job on the picked nodes."""
    job, tally = s.jobs[row], s.tally[0]
    gpus = 0
    at = job["pool"]
    for place in range(tally["picked"]):
        node = s.pick_nodes[place]
        took = s.pick_gpus[place]
        s.held_nodes[at + place] = node
        s.held_gpus[at + place] = took
        gpus += took
        _take(s, row, node, took)
    job["held"] = gpus
    job["span"] = tally["picked"]
    job["is_guest"] = 0
    tally["gpus_free"] -= gpus
    job["tier"] = _tier(s, row)
    _count_sender(s, row, 1)
    _begin(s, row, now)


@compiled
def start_as_guest(s: State, row: int, host: int, now: float) -> None:
    """Start a pending job on the GPUs of a running one that holds as many as it requests."""
    job, owner = s.jobs[row], s.jobs[host]
    for place in range(owner["span"]):
        node = s.held_nodes[owner["pool"] + place]
        s.held_nodes[job["pool"] + place] = node
        s.held_gpus[job["pool"] + place] = s.held_gpus[owner["pool"] + place]
        s.node_jobs[node, s.nodes[node]["running"]] = row
        s.nodes[node]["running"] += 1
    job["held"] = owner["held"]
    job["span"] = owner["span"]
    job["tier"] = owner["tier"]
    job["is_guest"] = 1
    job["partner"] = host
    owner["partner"] = row
    _count_sender(s, row, 1)
    _begin(s, row, now)
    repace(s, host, now)


@compiled
def stop(s: State, row: int, now: float, phase: int) -> None:
    """Take a running job off its GPUs; it ends, or pends again with its progress (`phase`)."""
    job, tally = s.jobs[row], s.tally[0]
    book(s, row, now)
    job["held_gpu_s"] += job["held"] * (now - job["since_time"])
    segment = s.segments[tally["segments"]]
    segment["job"] = row
    segment["gpus"] = job["held"]
    segment["nodes"] = job["span"]
    segment["tier"] = job["tier"]
    segment["start_time"] = job["since_time"]
    segment["end_time"] = now
    tally["segments"] += 1
    _leave(s, row)
    partner = job["partner"]
    for place in range(job["span"]):
        node = s.held_nodes[job["pool"] + place]
        _forget(s, row, node)
        if partner == NONE:
            _give_back(s, row, node, s.held_gpus[job["pool"] + place])
    if partner == NONE:
        tally["gpus_free"] += job["held"]
    else:
        s.jobs[partner]["partner"] = NONE
        s.jobs[partner]["is_guest"] = 0
        job["partner"] = NONE
        job["is_guest"] = 0
    job["phase"] = phase
    job["since_time"] = now
    if phase == PENDING and s.rules[0]["loses_work"]:
        _fall_back(s, row)
    job["finish_time"] = np.inf
    job["watch_time"] = np.inf
    set_timer(s, row)
    _repace_neighbours(s, row, now)
    if partner != NONE:
        repace(s, partner, now)
    job["held"] = 0
    job["span"] = 0


@compiled
def end(s: State, row: int, now: float, how: int) -> None:
    """End a running job."""
    stop(s, row, now, ENDED)
    job = s.jobs[row]
    job["end"] = how
    job["end_time"] = now
    s.tally[0]["ended"] += 1


@compiled
def preempt(s: State, row: int, now: float) -> None:
    """Return a running job to the queue."""
    stop(s, row, now, PENDING)
    s.jobs[row]["preemptions"] += 1
    s.tally[0]["pending"] += 1


@compiled
def book(s: State, row: int, now: float) -> None:
    """Book the progress and the cost of a running job up to now."""
    job = s.jobs[row]
    passed = now - job["booked_time"]
    if passed <= 0.0:
        return
    job["attained_gpu_s"] += passed * job["held"]
    working = now - max(job["booked_time"], job["progress_time"])
    if working > 0.0:
        job["left_s"] = max(0.0, job["left_s"] - working * job["rate"])
        job["exposed_gpu_s"] += working * job["held"] * job["exposed_ratio"]
        job["lost_gpu_s"] += (passed - working) * job["held"]
    else:
        job["lost_gpu_s"] += passed * job["held"]
    job["booked_time"] = now


@compiled
def repace(s: State, row: int, now: float) -> None:
    """Compute the current rate of a running job, and when it ends."""
    book(s, row, now)
    job = s.jobs[row]
    job["rate"] = _rate(s, row)
    working_from = max(now, job["progress_time"])
    job["finish_time"] = working_from + job["left_s"] / job["rate"]
    set_timer(s, row)


@compiled
def set_timer(s: State, row: int) -> None:
    """Set the timer of a job: the first of its end, its time limit and the instant set by its policy."""
    job, tally = s.jobs[row], s.tally[0]
    due = job["watch_time"]
    if job["phase"] == RUNNING:
        due = min(due, job["finish_time"], kill_time(s, row))
    keys, slots = s.jobs["timer"], s.jobs["heap_slot"]
    job["timer"] = due
    if slots[row] != NONE:
        if due == np.inf:
            tally["timers"] = heap.remove(s.timers, keys, slots, 0, tally["timers"], row)
        else:
            heap.moved(s.timers, keys, slots, 0, tally["timers"], row)
    elif due < np.inf:
        tally["timers"] = heap.push(s.timers, keys, slots, 0, tally["timers"], row)


@compiled
def kill_time(s: State, row: int) -> float:
    """Return when a running job reaches its time limit; under ideal execution limits do not apply."""
    job, rules = s.jobs[row], s.rules[0]
    if rules["limits_bind"] == 0:
        return np.inf
    due = job["since_time"] + job["limit_s"]
    check, phase = rules["limit_check_s"], rules["limit_phase_time"]
    if check == 0.0:
        return due
    # slurmctld counts limits in whole seconds of its clock.
    due = np.floor(job["since_time"]) + job["limit_s"]
    return np.ceil((due - phase) / check) * check + phase


@compiled
def expired(s: State, row: int) -> int:
    """Return how a job whose timer is due ends: an `End`, or 0 if its policy set the timer."""
    job = s.jobs[row]
    if job["phase"] != RUNNING:
        return 0
    if job["finish_time"] <= job["timer"]:
        return FINISHED
    return TIME_LIMIT if kill_time(s, row) <= job["timer"] else 0


@compiled
def next_instant(s: State) -> float:
    """Return the instant of the next submission, timer or fault; infinity if there is none."""
    tally = s.tally[0]
    now = np.inf
    if tally["arrived"] < len(s.jobs):
        now = s.jobs[tally["arrived"]]["submit_time"]
    if tally["timers"] > 0:
        now = min(now, s.jobs[s.timers[0]]["timer"])
    if tally["faults"] < len(s.faults) and (now < np.inf or tally["pending"] > 0):
        now = min(now, s.faults[tally["faults"]]["time"])
    return now


@compiled
def next_victim(s: State, now: float) -> int:
    """Apply the faults up to now, and return a job to requeue because of one; NONE when there is none left."""
    tally = s.tally[0]
    while tally["faults"] < len(s.faults) and s.faults[tally["faults"]]["time"] <= now:
        fault = s.faults[tally["faults"]]
        node = s.nodes[fault["node"]]
        node["is_up"] = fault["is_up"]
        if fault["is_up"] == 0 and node["running"] > 0:
            return int(s.node_jobs[fault["node"], 0])
        tally["faults"] += 1
    return NONE


@compiled
def _begin(s: State, row: int, now: float) -> None:
    job, tally = s.jobs[row], s.tally[0]
    s.running[tally["running"]] = row
    job["queue_slot"] = tally["running"]
    tally["running"] += 1
    tally["pending"] -= 1
    job["phase"] = RUNNING
    job["since_time"] = now
    job["booked_time"] = now
    job["progress_time"] = now if job["starts"] == 0 else now + s.rules[0]["restart_s"]
    if job["starts"] == 0:
        job["start_time"] = now
    job["starts"] += 1
    repace(s, row, now)
    _repace_neighbours(s, row, now)


@compiled
def _take(s: State, row: int, node_row: int, gpus: int) -> None:
    job, node = s.jobs[row], s.nodes[node_row]
    node["gpus_free"] -= gpus
    node["cpus_free"] -= gpus * job["cpus_per_gpu"]
    node["memory_free_mib"] -= gpus * job["memory_mib_per_gpu"]
    s.leaves[node["leaf"]]["gpus_free"] -= gpus
    s.node_jobs[node_row, node["running"]] = row
    node["running"] += 1


@compiled
def _give_back(s: State, row: int, node_row: int, gpus: int) -> None:
    job, node = s.jobs[row], s.nodes[node_row]
    node["gpus_free"] += gpus
    node["cpus_free"] += gpus * job["cpus_per_gpu"]
    node["memory_free_mib"] += gpus * job["memory_mib_per_gpu"]
    s.leaves[node["leaf"]]["gpus_free"] += gpus


@compiled
def _forget(s: State, row: int, node_row: int) -> None:
    """Remove a job from the list of a node's jobs."""
    node = s.nodes[node_row]
    last = node["running"] - 1
    for place in range(last + 1):
        if s.node_jobs[node_row, place] == row:
            s.node_jobs[node_row, place] = s.node_jobs[node_row, last]
            s.node_jobs[node_row, last] = NONE
            break
    node["running"] = last


@compiled
def _tier(s: State, row: int) -> int:
    job = s.jobs[row]
    if job["span"] == 1:
        return NODE_TIER
    leaf = s.nodes[s.held_nodes[job["pool"]]]["leaf"]
    for place in range(1, job["span"]):
        if s.nodes[s.held_nodes[job["pool"] + place]]["leaf"] != leaf:
            return SPINE_TIER
    return LEAF_TIER


@compiled
def _leave(s: State, row: int) -> None:
    _count_sender(s, row, -1)
    tally = s.tally[0]
    slots = s.jobs["queue_slot"]
    last = s.running[tally["running"] - 1]
    s.running[slots[row]] = last
    slots[last] = slots[row]
    slots[row] = NONE
    tally["running"] -= 1


@compiled
def _count_sender(s: State, row: int, step: int) -> None:
    """Add a job of several GPUs to, or remove it from, the senders on its links."""
    job = s.jobs[row]
    if job["held"] > 1:
        pressure = s.profiles[job["profile"]]["node_pressure"]
        count_sender(s, _nodes_of(s, row), pressure, job["tier"] == SPINE_TIER, step)


@compiled
def _nodes_of(s: State, row: int) -> NDArray[np.int32]:
    job = s.jobs[row]
    return s.held_nodes[job["pool"] : job["pool"] + job["span"]]


@compiled
def _rate(s: State, row: int) -> float:
    """Return the work per second of a running job on its nodes, beside the jobs that run there."""
    job = s.jobs[row]
    job["exposed_ratio"] = 0.0
    if s.rules[0]["is_ideal"]:
        return job["held"] / job["work_gpus"]
    profile = s.profiles[job["profile"]]
    rate = 1.0
    if job["held"] != job["work_gpus"]:
        rate = step_s(profile, job["work_gpus"]) / step_s(profile, job["held"])
    speed = np.inf
    nodes = _nodes_of(s, row)
    for node in nodes:
        speed = min(speed, s.type_speed[job["profile"], s.nodes[node]["gpu_type"]])
    if job["held"] > 1:
        # Traffic is stated for the profile's own GPU type and the size asked: a faster job sends more often.
        pace = speed * rate
        bandwidth = slowest_gbps(s, nodes, profile["node_pressure"], job["tier"] == SPINE_TIER, 0) / pace
        best_nodes = -(-job["held"] // job["node_gpus"])
        best = best_gbps(s, best_nodes) / pace
        # GPUs of one node send to each other what two nodes would: the traffic is stated for two.
        rate /= inflation(profile, job["held"], max(job["span"], 2), bandwidth, max(best_nodes, 2), best)
        exposed = exposed_s(profile, job["held"], max(job["span"], 2), bandwidth)
        job["exposed_ratio"] = exposed / (1.0 + exposed)
    rate *= speed / job["reference_speed"]
    if job["partner"] != NONE:
        rate /= gpu_share_inflation(profile, s.profiles[s.jobs[job["partner"]]["profile"]])
    return rate


@compiled
def _repace_neighbours(s: State, row: int, now: float) -> None:
    """Compute the rates of the jobs that share links with a job that starts or stops."""
    if s.rules[0]["is_ideal"] or not _shares_links(s, row):
        return
    job = s.jobs[row]
    for place in range(job["span"]):
        node_row = s.held_nodes[job["pool"] + place]
        for other in range(s.nodes[node_row]["running"]):
            neighbour = s.node_jobs[node_row, other]
            if neighbour != row and _shares_links(s, neighbour):
                repace(s, neighbour, now)
    if job["tier"] == SPINE_TIER:
        _repace_crossing(s, row, now)


@compiled
def _shares_links(s: State, row: int) -> bool:
    """Return whether a job sends over links that other jobs on its nodes use."""
    job = s.jobs[row]
    return bool(job["span"] > 1 or (job["held"] > 1 and s.rules[0]["node_shared"]))


@compiled
def _repace_crossing(s: State, row: int, now: float) -> None:
    """Compute the rates of the other jobs that cross the uplinks of a job's leaves; of all if the spine binds."""
    tally = s.tally[0]
    share = spine_ratio(s, tally["loaded"])
    for_all = share != tally["spine_ratio"]
    tally["spine_ratio"] = share
    for place in range(tally["running"]):
        other = s.running[place]
        if other == row or s.jobs[other]["tier"] != SPINE_TIER:
            continue
        if for_all or _shares_leaf(s, row, other):
            repace(s, other, now)


@compiled
def _shares_leaf(s: State, one: int, other: int) -> bool:
    for mine in _nodes_of(s, one):
        for theirs in _nodes_of(s, other):
            if s.nodes[mine]["leaf"] == s.nodes[theirs]["leaf"]:
                return True
    return False


@compiled
def _fall_back(s: State, row: int) -> None:
    """Return a stopped job to its last checkpoint, or to its beginning if it makes none."""
    job = s.jobs[row]
    done = job["work_s"] - job["left_s"]
    kept = done // job["checkpoint_s"] * job["checkpoint_s"] if job["checkpoint_s"] > 0.0 else 0.0
    job["lost_gpu_s"] += (done - kept) / job["rate"] * job["held"]
    job["left_s"] = job["work_s"] - kept
