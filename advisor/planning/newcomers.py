"""Computes which jobs get a nice at their submission: those that the next round would lift.

A job that arrives is compared with the last of the jobs that lifts keep at the head of its line. It gets the priority
of a lift where its key is lower than that job's. Its priority is not known before its submission, so it is counted with
the lowest that jobs of its user have in the line; a user without a job there, with the lowest of all.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import NO_FORECASTS, Forecasts
from advisor.domain.mark import MARK_SPAN, marked
from advisor.domain.memory import NOTHING_KNOWN, Memory
from advisor.domain.snapshot import Snapshot
from advisor.features.capacity import node_table
from advisor.features.queue import QueueTable, queue_table
from advisor.planning.case import nice_of_ours
from advisor.planning.levers import missing_for_nice
from advisor.planning.lifts import lifted_priority
from advisor.planning.objective import Objective, Waiting, objective_of, waiting_of
from advisor.settings import Limits, PlanningSettings

# Each class holds jobs of half the size of the class before; smaller jobs than those of the last class count as these.
MOST_CLASSES: Final = 20
# A job arrives with the priority of jobs that wait, so that it changes no order among them.
_ARRIVAL_GPU_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The GPU-time in seconds below which jobs are lifted, and the share of their time limits that they use."""

    gpu_s: float
    used_limit_ratio: float

    @property
    def limit_gpu_s(self) -> float:
        """The same bound of the GPUs times the time limit."""
        return self.gpu_s / self.used_limit_ratio if self.used_limit_ratio > 0.0 else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Nice values by size class: `nice` for class 0, the sizes down to half of the bound, and `step` less for each."""

    nice: int
    step: int
    classes: int

    def holds(self, nice: int) -> bool:
        """Return whether a nice value is that of a class."""
        return self.class_of(nice) is not None

    def class_of(self, nice: int) -> int | None:
        """Return the class of a nice value; None if it is that of none."""
        steps, rest = divmod(self.nice - nice, self.step)
        return steps if rest == 0 and 0 <= steps <= self.classes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomers:
    """The nice values of the jobs that arrive in one partition.

    `bounds` are those of the users with jobs in the line, `others` that of all other users.
    """

    partition: str
    ladder: Ladder
    others: Bound
    bounds: Mapping[str, Bound]


def newcomers(
    snapshot: Snapshot,
    planning: PlanningSettings,
    limits: Limits,
    forecasts: Forecasts = NO_FORECASTS,
    memory: Memory = NOTHING_KNOWN,
) -> Iterator[Newcomers]:
    """Yield the nice values of the partitions in which jobs of known run times wait, by name."""
    # What is lifted at submission would not be counted before it is.
    if not limits.lifts_pass_others or limits.is_lane or missing_for_nice(snapshot) is not None:
        return
    ratio = planning.used_limit_ratio_low
    queue = queue_table(snapshot, node_table(snapshot), max(1, len(snapshot.jobs)), forecasts, rule_ratio=ratio)
    objective = objective_of(snapshot.config, planning, limits)
    ours = nice_of_ours(snapshot, memory)
    # A job there takes more than the GPUs by which the script counts it.
    whole = {partition.name for partition in snapshot.partitions if partition.gives_whole_nodes}
    for partitions, pool in sorted(queue.pool_by_partitions.items()):
        rows = queue.rows_of(pool)
        rows = rows[np.isfinite(queue.run.expected_s[rows])]
        capacity = float(queue.pool_capacity[pool].sum())
        if len(partitions) != 1 or partitions[0] in whole or not len(rows) or capacity <= 0.0:
            continue
        line = _Line.of(queue, rows, ours, capacity)
        arriving = line.newcomers(partitions[0], objective, planning.lift_places, limits.nice_min)
        if arriving is not None:
            yield arriving


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The jobs of one pool whose run times are known; all arrays `(n_jobs,)`."""

    waiting: Waiting
    priority: NDArray[np.float64]  # as it is now
    lifted: NDArray[np.bool_]
    user: NDArray[np.str_]
    used_limit_ratio: NDArray[np.float64]

    @classmethod
    def of(cls, queue: QueueTable, rows: NDArray[np.intp], nice_of_ours: Mapping[int, int], capacity: float) -> "_Line":
        jobs = [queue.jobs[row] for row in rows.tolist()]
        ours = np.array([nice_of_ours.get(job.job_id, 0) for job in jobs], dtype=np.int64)
        run_s, limit_s = queue.run.expected_s[rows], queue.limit_s[rows]
        return cls(
            # What is owed to users and to late jobs is left to the rounds.
            waiting=waiting_of(queue, rows, ours, capacity),
            priority=queue.priority[rows].astype(np.float64),
            lifted=ours < 0,
            user=np.array([job.user for job in jobs], dtype=np.str_),
            used_limit_ratio=np.where(limit_s > 0.0, np.minimum(run_s / np.maximum(limit_s, 1.0), 1.0), 1.0),
        )

    def newcomers(self, partition: str, objective: Objective, places: int, nice_min: int) -> Newcomers | None:
        """Return the nice values of the jobs that arrive; None where no value is low enough."""
        users, first = np.unique(self.user, return_inverse=True)
        lowest = np.full(len(users), np.inf)
        np.minimum.at(lowest, first, self.waiting.priority)
        keys = objective.keys(self._with_arrivals(lowest))
        waiting_keys, keys_per_gpu_s = keys[: len(self.user)], keys[len(self.user) :] / _ARRIVAL_GPU_S
        place = min(places, len(waiting_keys)) - 1
        last = max(float(np.partition(waiting_keys, place)[place]), _ARRIVAL_GPU_S)
        levels = _levels(last, self.priority[~self.lifted].max(initial=0.0), objective.scale)
        step = math.ceil((levels[1] - levels[0]) / MARK_SPAN) * MARK_SPAN
        # In steps, so that the values hardly ever change.
        base = math.floor(float(lowest.min()) / step) * step
        nice = marked(min(base - levels[0], -1))
        if nice < nice_min:
            return None
        ratio = np.zeros(len(users))
        np.add.at(ratio, first, self.used_limit_ratio)
        ratio /= np.bincount(first, minlength=len(users))
        bounds = last / keys_per_gpu_s
        return Newcomers(
            partition=partition,
            ladder=Ladder(nice=nice, step=step, classes=min(MOST_CLASSES, (nice - nice_min) // step)),
            others=Bound(gpu_s=float(bounds.min()), used_limit_ratio=float(self.used_limit_ratio.mean())),
            bounds={
                user: Bound(gpu_s=gpu_s, used_limit_ratio=share)
                for user, gpu_s, share in zip(users.tolist(), bounds.tolist(), ratio.tolist(), strict=True)
            },
        )

    def _with_arrivals(self, priority: NDArray[np.float64]) -> Waiting:
        """Return the line with one small job behind it for each priority."""
        line, nothing = self.waiting, np.zeros(len(priority))
        return Waiting(
            priority=np.r_[line.priority, priority],
            gpu_s=np.r_[line.gpu_s, nothing + _ARRIVAL_GPU_S],
            tasks=np.r_[line.tasks, nothing + 1.0],
            run_s=np.r_[line.run_s, nothing],
            waited_s=np.r_[line.waited_s, nothing],
            owed=np.r_[line.owed, nothing],
            is_overdue=np.r_[line.is_overdue, nothing > 0.0],
            capacity=line.capacity,
        )


def _levels(key: float, highest: float, scale: float) -> tuple[int, int]:
    """Return the priorities of lifted jobs with a key, rounded up to a power of two, and with half of it."""
    upper = 2.0 ** math.ceil(math.log2(key))
    first, second = lifted_priority(np.array([upper, upper / 2.0]), highest, scale).tolist()
    return int(first), int(second)
