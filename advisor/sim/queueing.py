"""The event loop of policies that keep one queue and place jobs themselves.

Pending jobs stand in one heap per shape of request: if the first job of a shape does not fit, no other of that shape
does, so that a decision examines shapes and not the whole queue.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.sim import heap
from advisor.sim.compiled import compiled, lent
from advisor.sim.execution import book, end, expired, next_instant, next_victim, preempt, set_timer, start
from advisor.sim.gang_placement import pick, pick_anywhere
from advisor.sim.state import FUTURE, NONE, PENDING, State
from advisor.sim.victims import make_room, make_room_anywhere


class Key(IntEnum):
    """The sort key of a queue, lowest first."""

    SUBMIT = 0
    RUN_TIME = 1  # believed, as a whole
    REMAINING = 2  # believed, of what is left
    PREDICTED = 3  # mean of what the same user's jobs of this size took so far
    ATTAINED = 4  # level of a multi-level queue by GPU-time attained, then submit time


SUBMIT, RUN_TIME, REMAINING, PREDICTED, ATTAINED = (int(key) for key in Key)

RULES_DTYPE = np.dtype(
    [
        ("promote_ratio", np.float64),  # waiting this many times its run time lifts a job back up; 0: never
        ("key", np.int8),
        ("by_gpus", np.int8),  # the key counts times the GPUs
        ("is_strict", np.int8),  # the first job blocks all others
        ("is_preemptive", np.int8),
    ],
    align=True,
)

DONE, PAUSED, FULL = 0, 1, 2


class Queue(NamedTuple):
    """The pending jobs by shape; shapes in brackets."""

    rules: NDArray[np.void]  # (1,)
    order: NDArray[np.int32]  # (n_jobs,)
    base: NDArray[np.int64]  # (n_shapes,): where the heap of a shape begins in `order`
    length: NDArray[np.int64]  # (n_shapes,)
    blocked: NDArray[np.int8]  # (n_shapes,)
    levels_gpu_s: NDArray[np.float64]  # (n_levels - 1,): GPU-time at which a job sinks to the next level
    group: NDArray[np.int32]  # (n_jobs,): jobs whose run times predict each other
    group_sum_s: NDArray[np.float64]  # (n_groups,)
    group_count: NDArray[np.int64]  # (n_groups,)
    spread: NDArray[np.int8]  # (n_jobs,): takes GPUs wherever they are
    victims: NDArray[np.int32]  # (most_running,)
    costs: NDArray[np.float64]  # (n_nodes,)


def build_queue(
    state: State,
    *,
    key: Key,
    by_gpus: bool = False,
    strict: bool = True,
    preemptive: bool = False,
    levels_gpu_s: tuple[float, ...] = (),
    promote_ratio: float = 0.0,
    spread: NDArray[np.bool_] | None = None,
) -> Queue:
    """Build the empty queue of a policy; the jobs marked in `spread`, `(n_jobs,)`, are not consolidated."""
    jobs = state.jobs
    spread = np.zeros(len(jobs), np.bool_) if spread is None else spread & (jobs["gpus"] > 1)
    # Jobs of one shape are placed alike.
    jobs["shape"] = np.unique(2 * jobs["shape"] + spread, return_inverse=True)[1]
    counts = np.bincount(jobs["shape"])
    pairs = np.stack([jobs["user"].astype(np.int64), jobs["gpus"].astype(np.int64)], axis=1)
    group = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int32)
    rules = np.zeros(1, RULES_DTYPE)
    rules["key"], rules["by_gpus"] = key, by_gpus
    rules["is_strict"], rules["is_preemptive"] = strict, preemptive
    rules["promote_ratio"] = promote_ratio
    return Queue(
        rules=rules,
        order=np.full(len(jobs), NONE, np.int32),
        base=np.r_[0, counts.cumsum()[:-1]].astype(np.int64),
        length=np.zeros(len(counts), np.int64),
        blocked=np.zeros(len(counts), np.int8),
        levels_gpu_s=np.array(levels_gpu_s, dtype=np.float64),
        group=group,
        group_sum_s=np.zeros(int(group.max()) + 1),
        group_count=np.zeros(int(group.max()) + 1, np.int64),
        spread=spread.astype(np.int8),
        victims=np.full(len(state.running), NONE, np.int32),
        costs=np.zeros(len(state.nodes)),
    )


@compiled
def run_queue(s: State, q: Queue, until: float) -> int:
    """Run until all jobs have ended (DONE), `until` (PAUSED), or the segments are full (FULL)."""
    s, q = lent(s), lent(q)
    tally = s.tally[0]
    while True:
        if len(s.segments) - tally["segments"] < tally["running"] + 2:
            return FULL
        now = next_instant(s)
        if now == np.inf:
            return DONE
        if now > until:
            tally["now"] = until
            return PAUSED
        tally["now"] = now
        while tally["timers"] > 0 and s.jobs[s.timers[0]]["timer"] <= now:
            _due(s, q, s.timers[0], now)
        victim = next_victim(s, now)
        while victim != NONE:
            preempt(s, victim, now)
            _enqueue(s, q, victim, now)
            victim = next_victim(s, now)
        while tally["arrived"] < len(s.jobs) and s.jobs[tally["arrived"]]["submit_time"] <= now:
            _submit(s, q, tally["arrived"], now)
            tally["arrived"] += 1
        _serve(s, q, now)


@compiled
def key_of(s: State, q: Queue, row: int) -> float:
    """Return the sort key of a job, from its booked progress."""
    job, rules = s.jobs[row], q.rules[0]
    kind = rules["key"]
    if kind == SUBMIT:
        return job["submit_time"]
    if kind == ATTAINED:
        return float(_level(q, job["attained_gpu_s"]))
    weight = float(job["gpus"]) if rules["by_gpus"] else 1.0
    if kind == REMAINING:
        return job["believed_s"] * job["left_s"] / job["work_s"] * weight
    if kind == PREDICTED:
        group = q.group[row]
        if q.group_count[group] > 0:
            return q.group_sum_s[group] / q.group_count[group] * weight
    return job["believed_s"] * weight


@compiled
def _level(q: Queue, attained_gpu_s: float) -> int:
    level = 0
    # A level ends where its limit is reached, up to the error of sums.
    while level < len(q.levels_gpu_s) and attained_gpu_s >= q.levels_gpu_s[level] * (1.0 - 1e-12):
        level += 1
    return level


@compiled
def _submit(s: State, q: Queue, row: int, now: float) -> None:
    job = s.jobs[row]
    if job["phase"] != FUTURE:
        s.tally[0]["ended"] += 1  # it can never fit
        return
    job["since_time"] = now
    s.tally[0]["pending"] += 1
    _enqueue(s, q, row, now)


@compiled
def _enqueue(s: State, q: Queue, row: int, now: float) -> None:
    job, rules = s.jobs[row], q.rules[0]
    job["phase"] = PENDING
    job["key"] = key_of(s, q, row)
    if rules["promote_ratio"] > 0.0 and job["key"] > 0.0:
        served_s = job["attained_gpu_s"] / job["gpus"]
        job["watch_time"] = now + rules["promote_ratio"] * served_s
        set_timer(s, row)
    shape = job["shape"]
    q.length[shape] = heap.push(q.order, s.jobs["key"], s.jobs["queue_slot"], q.base[shape], q.length[shape], row)


@compiled
def _dequeue(s: State, q: Queue, row: int) -> None:
    shape = s.jobs[row]["shape"]
    q.length[shape] = heap.remove(q.order, s.jobs["key"], s.jobs["queue_slot"], q.base[shape], q.length[shape], row)


@compiled
def _due(s: State, q: Queue, row: int, now: float) -> None:
    """Handle a job whose timer is due: it ends, sinks a level, or is promoted."""
    job = s.jobs[row]
    how = expired(s, row)
    if how > 0:
        end(s, row, now, how)
        group = q.group[row]
        q.group_sum_s[group] += job["work_s"]
        q.group_count[group] += 1
        return
    job["watch_time"] = np.inf
    if job["phase"] == PENDING:
        _dequeue(s, q, row)
        job["attained_gpu_s"] = 0.0
        set_timer(s, row)
        _enqueue(s, q, row, now)
    else:
        book(s, row, now)
        _watch_level(s, q, row, now)


@compiled
def _watch_level(s: State, q: Queue, row: int, now: float) -> None:
    """Set the timer of a running job to when it reaches the limit of its level."""
    job = s.jobs[row]
    level = _level(q, job["attained_gpu_s"])
    if level < len(q.levels_gpu_s):
        job["watch_time"] = now + (q.levels_gpu_s[level] - job["attained_gpu_s"]) / job["held"]
    set_timer(s, row)


@compiled
def _serve(s: State, q: Queue, now: float) -> None:
    """Start the jobs that fit, in order."""
    rules = q.rules[0]
    q.blocked[:] = 0
    while s.tally[0]["pending"] > 0:
        row = _first(s, q)
        if row == NONE:
            return
        job = s.jobs[row]
        placed = _pick(s, q, row)
        if not placed and rules["is_preemptive"]:
            placed = _push_aside(s, q, row, now)
        if placed:
            _dequeue(s, q, row)
            job["watch_time"] = np.inf
            start(s, row, now)
            if len(q.levels_gpu_s) > 0:
                _watch_level(s, q, row, now)
        elif rules["is_strict"]:
            return
        else:
            q.blocked[job["shape"]] = 1


@compiled
def _pick(s: State, q: Queue, row: int) -> bool:
    gpus = s.jobs[row]["gpus"]
    return pick(s, row, gpus) or (q.spread[row] == 1 and pick_anywhere(s, row, gpus))


@compiled
def _first(s: State, q: Queue) -> int:
    """Return the first job in the order among the shapes that are not blocked."""
    best = NONE
    for shape in range(len(q.length)):
        if q.length[shape] == 0 or q.blocked[shape] == 1:
            continue
        row = q.order[q.base[shape]]
        if best == NONE:
            best = row
            continue
        key, lowest = s.jobs[row]["key"], s.jobs[best]["key"]
        if key < lowest or (key == lowest and row < best):
            best = row
    return best


@compiled
def _push_aside(s: State, q: Queue, row: int, now: float) -> bool:
    """Preempt later running jobs so that a job fits, and pick its nodes; return False if preemption does not help."""
    key = s.jobs[row]["key"]
    for place in range(s.tally[0]["running"]):
        other = s.running[place]
        book(s, other, now)
        s.jobs[other]["key"] = key_of(s, q, other)
    if q.spread[row] == 1:
        victims = make_room_anywhere(s, q.victims, row, key)
    else:
        victims = make_room(s, q.victims, q.costs, row, key)
    for place in range(victims):
        victim = q.victims[place]
        preempt(s, victim, now)
        _enqueue(s, q, victim, now)
    return victims > 0 and _pick(s, q, row)
