"""The queue of policies that keep one and place jobs themselves; `engine/queue.c` runs it.

Pending jobs stand in one heap per shape of request: if the first job of a shape does not fit, no other of that shape
does, so that a decision examines shapes and not the whole queue.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.sim.state import NONE, State

# From the table of jobs to the keys of all of them, `(n_jobs,)`.
GivenKey = Callable[[NDArray[np.void]], NDArray[np.float64]]


class Key(IntEnum):
    """The sort key of a queue, lowest first, then by submit time; in the order of `KEYS` in `engine/queue.c`."""

    GIVEN = 0  # known at the submission
    REMAINING = 1  # believed, of what is left
    PREDICTED = 2  # mean of what the same user's jobs of this size took so far
    ATTAINED = 3  # level of a multi-level queue by GPU-time attained


QUEUE_RULES_DTYPE = np.dtype(
    [
        ("promote_ratio", np.float64),  # waiting this many times its run time lifts a job back up; 0: never
        ("key", np.int8),
        ("by_gpus", np.int8),  # a remaining or predicted time counts times the GPUs
        ("is_strict", np.int8),  # the first job blocks all others
        ("is_preemptive", np.int8),
    ],
    align=True,
)

# How a loop stops: all jobs have ended, the instant is reached, the segments are full, or a decision is due.
DONE, PAUSED, FULL, ROUND = range(4)


class Queue(NamedTuple):
    """The pending jobs by shape; shapes in brackets."""

    rules: NDArray[np.void]  # (1,)
    order: NDArray[np.int32]  # (n_jobs,)
    base: NDArray[np.int64]  # (n_shapes,): where the heap of a shape begins in `order`
    length: NDArray[np.int64]  # (n_shapes,)
    blocked: NDArray[np.int8]  # (n_shapes,)
    given: NDArray[np.float64]  # (n_jobs,): the keys that are known at the submission
    levels_gpu_s: NDArray[np.float64]  # (n_levels - 1,): GPU-time at which a job sinks to the next level
    group: NDArray[np.int32]  # (n_jobs,): jobs whose run times predict each other
    group_sum_s: NDArray[np.float64]  # (n_groups,)
    group_count: NDArray[np.int64]  # (n_groups,)
    spread: NDArray[np.int8]  # (n_jobs,): takes GPUs wherever they are


def build_queue(
    state: State,
    *,
    key: Key | GivenKey,
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
    groups, group = np.unique(pairs, axis=0, return_inverse=True)
    rules = np.zeros(1, QUEUE_RULES_DTYPE)
    rules["key"], rules["by_gpus"] = key if isinstance(key, Key) else Key.GIVEN, by_gpus
    rules["is_strict"], rules["is_preemptive"] = strict, preemptive
    rules["promote_ratio"] = promote_ratio
    return Queue(
        rules=rules,
        order=np.full(len(jobs), NONE, np.int32),
        base=np.r_[0, counts.cumsum()[:-1]].astype(np.int64),
        length=np.zeros(len(counts), np.int64),
        blocked=np.zeros(len(counts), np.int8),
        given=np.zeros(len(jobs)) if isinstance(key, Key) else key(jobs).astype(np.float64),
        levels_gpu_s=np.array(levels_gpu_s, dtype=np.float64),
        group=group.reshape(-1).astype(np.int32),
        group_sum_s=np.zeros(len(groups)),
        group_count=np.zeros(len(groups), np.int64),
        spread=spread.astype(np.int8),
    )
