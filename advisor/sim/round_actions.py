"""Allocate GPUs to jobs in the order of a policy: free GPUs first, then those of later jobs."""

import numpy as np
from numpy.typing import NDArray

from advisor.sim.compiled import compiled, lent
from advisor.sim.execution import book, preempt, start, start_as_guest
from advisor.sim.gang_placement import pick
from advisor.sim.profiles import step_s
from advisor.sim.state import PENDING, RUNNING, State
from advisor.sim.victims import make_room

# No gang is as large: a shape of which nothing failed.
NEVER = 1 << 30


@compiled
def serve(  # noqa: PLR0913, PLR0917 -- compiled loops take arrays, not records
    s: State,
    rows: NDArray[np.int32],
    gpus: NDArray[np.int32],
    least: NDArray[np.int32],
    failed: NDArray[np.int32],
    victims: NDArray[np.int32],
    costs: NDArray[np.float64],
    now: float,
    may_preempt: bool,
) -> None:
    """Start, resize and stop jobs to reach their sizes, in the order of `rows`; see `RoundView.serve`.

    `failed` `(n_shapes,)`, `victims` `(most_running,)` and `costs` `(n_nodes,)` are work arrays.
    """
    s = lent(s)
    failed[:] = NEVER
    for place in range(s.tally[0]["running"]):
        s.jobs[s.running[place]]["key"] = np.inf
    for place in range(len(rows)):
        s.jobs[rows[place]]["key"] = float(place)
    for place in range(len(rows)):
        _shrink(s, rows[place], gpus[place], now)
    for place in range(len(rows)):
        row = rows[place]
        job = s.jobs[row]
        if job["phase"] == RUNNING:
            _grow(s, row, gpus[place], least[place], now)
        elif job["phase"] == PENDING and gpus[place] > 0:
            # Where a smaller gang of the shape failed, this one will.
            for size in range(min(gpus[place], failed[job["shape"]] - 1), least[place] - 1, -1):
                if pick(s, row, size) or (may_preempt and _push_aside(s, victims, costs, row, size, now)):
                    start(s, row, now)
                    break
                failed[job["shape"]] = size


@compiled
def start_one(s: State, row: int, gpus: int, least: int, now: float) -> bool:
    """Start a pending job on as many of `gpus` as fit; return False if fewer than `least` do."""
    s = lent(s)
    for size in range(gpus, least - 1, -1):
        if pick(s, row, size):
            start(s, row, now)
            return True
    return False


@compiled
def share_gpus(s: State, rows: NDArray[np.int32], hosts: NDArray[np.int32], now: float) -> None:
    """Start pending jobs on the GPUs of running ones that hold as many."""
    s = lent(s)
    for place in range(len(rows)):
        start_as_guest(s, rows[place], hosts[place], now)


@compiled
def put_back(s: State, rows: NDArray[np.int32], now: float) -> None:
    """Return running jobs to the queue."""
    s = lent(s)
    for place in range(len(rows)):
        preempt(s, rows[place], now)


@compiled
def book_all(s: State, now: float) -> None:
    """Book the progress of the running jobs up to now."""
    s = lent(s)
    for place in range(s.tally[0]["running"]):
        book(s, s.running[place], now)


@compiled
def best_rates(s: State, rows: NDArray[np.int32], gpus: NDArray[np.int32], rates: NDArray[np.float64]) -> None:
    """Compute the work per second of jobs at sizes, alone on the best placement; all arrays are `(n_rows,)`."""
    s = lent(s)
    for place in range(len(rows)):
        job = s.jobs[rows[place]]
        profile = s.profiles[job["profile"]]
        rates[place] = step_s(profile, job["work_gpus"]) / step_s(profile, gpus[place])


@compiled
def _shrink(s: State, row: int, gpus: int, now: float) -> None:
    job = s.jobs[row]
    if job["phase"] != RUNNING or gpus >= job["held"]:
        return
    if gpus == 0:
        preempt(s, row, now)
    else:
        _move(s, row, gpus, now)


@compiled
def _grow(s: State, row: int, gpus: int, least: int, now: float) -> None:
    for size in range(gpus, max(least, s.jobs[row]["held"] + 1) - 1, -1):
        if _move(s, row, size, now):
            return


@compiled
def _move(s: State, row: int, gpus: int, now: float) -> bool:
    """Restart a running job at another size; return False and change nothing if that does not fit."""
    job = s.jobs[row]
    _lend(s, row, 1)
    fits = pick(s, row, gpus)
    _lend(s, row, -1)
    if fits:
        preempt(s, row, now)
        job["preemptions"] -= 1
        job["resizes"] += 1
        start(s, row, now)
    return fits


@compiled
def _lend(s: State, row: int, sign: int) -> None:
    """Count the allocation of a job as free (1), or as taken again (-1)."""
    job = s.jobs[row]
    for place in range(job["span"]):
        gpus = sign * s.held_gpus[job["pool"] + place]
        node = s.nodes[s.held_nodes[job["pool"] + place]]
        node["gpus_free"] += gpus
        node["cpus_free"] += gpus * job["cpus_per_gpu"]
        node["memory_free_mib"] += gpus * job["memory_mib_per_gpu"]
        s.leaves[node["leaf"]]["gpus_free"] += gpus
        s.tally[0]["gpus_free"] += gpus


@compiled
def _push_aside(
    s: State, victims: NDArray[np.int32], costs: NDArray[np.float64], row: int, gpus: int, now: float
) -> bool:
    """Return later jobs to the queue so that a job fits, and pick its nodes."""
    job = s.jobs[row]
    # Taking one of two jobs that share GPUs frees none: only the host counts, and its guest goes with it. Whole nodes
    # are emptied of guests too.
    for place in range(s.tally[0]["running"]):
        other = s.jobs[s.running[place]]
        if other["is_guest"] == 1:
            other["key"] = -1.0 if gpus <= job["node_gpus"] else s.jobs[other["partner"]]["key"]
    # The room is made for the size asked, so the size wanted stands there meanwhile.
    asked = job["gpus"]
    job["gpus"] = gpus
    count = make_room(s, victims, costs, row, job["key"])
    job["gpus"] = asked
    for place in range(count):
        partner = s.jobs[victims[place]]["partner"]
        if partner >= 0 and s.jobs[victims[place]]["is_guest"] == 0:
            preempt(s, partner, now)
        if s.jobs[victims[place]]["phase"] == RUNNING:
            preempt(s, victims[place], now)
    return count > 0 and pick(s, row, gpus)
