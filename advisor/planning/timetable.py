"""Schedules pending jobs by their time limits, node by node, as Slurm's backfill plans them.

Time ahead is divided into steps: the first is now, the others are as long as backfill's resolution or, if that is
longer, a fiftieth of the time ahead (more on large clusters). A job holds its resources until the end of the step in
which it ends.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.gang import MOST, GangRequest
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.features.capacity import Fitter
from advisor.features.claims import Claim, claim
from advisor.features.nodes import Counts, Flags, Mebibytes, NodeTable
from advisor.planning.earliest import Holdings

# The most numbers in the array of idle resources, 8 bytes each.
_MOST_CELLS: Final = 4_000_000

# An overdue job ends within a second.
_LEAST_S: Final = 1.0

_Request = tuple[GangRequest, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The resources that a job holds from step `begin` until step `end`; seconds count from the snapshot."""

    begin: int
    end: int
    start_s: float
    end_s: float
    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class _IdleGpus:
    """The idle GPUs of some types on the usable nodes of some partitions at each step, and their sum."""

    columns: list[int]  # of the types
    place: dict[int, int]  # of each row of the table among those nodes
    by_node: NDArray[np.int64]  # (n_steps, n_those)
    sum: NDArray[np.int64]  # (n_steps,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FirstSteps:
    """The steps before which equal requests do not fit, by time limit; both ascend.

    What does not fit until its time limit does not fit for longer, and adding jobs never makes room.
    """

    limits_s: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def known(self, limit_s: float) -> int:
        """Return the step before which a request with a time limit does not fit."""
        place = bisect_right(self.limits_s, limit_s)
        return self.steps[place - 1] if place else 0

    def note(self, limit_s: float, step: int) -> None:
        """Keep that a request does not fit before a step; no less than what is known already."""
        first = bisect_left(self.limits_s, limit_s)
        last = max(first, bisect_right(self.steps, step))
        self.limits_s[first:last], self.steps[first:last] = [limit_s], [step]

    def copy(self) -> "_FirstSteps":
        """Return a copy."""
        return _FirstSteps(limits_s=self.limits_s.copy(), steps=self.steps.copy())


class Timetable:
    """The idle resources of each step, less those of the jobs that were added.

    `fitter` computes where gangs fit now, and `holdings` are the resources of running jobs until their time limits.
    Jobs are scheduled up to `horizon_s` ahead.
    """

    def __init__(self, snapshot: Snapshot, fitter: Fitter, holdings: Holdings, horizon_s: float) -> None:
        self._snapshot, self._table = snapshot, fitter.table
        most_steps = _MOST_CELLS // max(1, _resources(self._table).size)
        self._times_s = _steps_s(max(1.0, snapshot.config.backfill_resolution_s), horizon_s, most_steps)
        ends_s = np.maximum(holdings.end_time - snapshot.taken_at, _LEAST_S)
        released = self._step_at(ends_s)
        self._idle = _idle(self._table, holdings, released, len(self._times_s))
        # What is idle grows only where a job ends, and shrinks only where one begins.
        self._begins: list[int] = []
        self._ends = np.zeros(len(self._times_s) + 1, dtype=np.bool_)
        self._ends[released] = True
        # All that is released in a step is idle by this time, the end of the step at the latest.
        self._ended_s = np.zeros(len(self._times_s) + 1)
        np.maximum.at(self._ended_s, released, ends_s)
        self._slots: list[Slot] = []
        self._nodes = _NodesByRequest(self._table)
        self._idle_gpus: dict[tuple[tuple[str, ...], frozenset[str | None]], _IdleGpus] = {}
        self._now = fitter
        self._fitters: dict[tuple[int, ...], Fitter] = {(0,): fitter}
        self._first_steps: defaultdict[_Request, _FirstSteps] = defaultdict(_FirstSteps)

    def starts_now(self, job: Job, limit_s: float) -> bool:
        """Return whether slurmctld can start a job now; not if its own plan has a later start for it."""
        return self._first(job, limit_s, 1) == 0

    def fitter(self, limit_s: float) -> Fitter:
        """Return the fitter for jobs that hold their nodes from now on for a time limit."""
        return self._fitter(self._lowest(0, self._end(0, limit_s)))

    def slot(self, job: Job, limit_s: float) -> Slot | None:
        """Return the first slot that holds a job for its time limit; None where it is beyond the horizon."""
        begin = self._first(job, limit_s, len(self._times_s))
        return None if begin is None else self._slot(job, begin, limit_s)

    def slot_now(self, job: Job, limit_s: float) -> Slot:
        """Return the slot of a job that starts now."""
        return self._slot(job, 0, limit_s)

    def add(self, slot: Slot) -> None:
        """Take the resources of a slot from what is idle."""
        self._hold(slot, 1)
        self._slots.append(slot)
        self._ended_s[slot.end] = max(self._ended_s[slot.end], slot.end_s)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Drop the slots that are added in the block at its end."""
        n_slots, ended_s = len(self._slots), self._ended_s.copy()
        first_steps = {request: steps.copy() for request, steps in self._first_steps.items()}
        try:
            yield
        finally:
            while len(self._slots) > n_slots:
                self._hold(self._slots.pop(), -1)
            self._first_steps, self._ended_s = defaultdict(_FirstSteps, first_steps), ended_s

    def nodes(self, job: Job) -> Flags:
        """Mark the nodes that a job can use: `(n_nodes,)`."""
        return self._nodes(job)

    def _is_later(self, job: Job) -> bool:
        return job.start_time is not None and job.start_time > self._snapshot.taken_at

    def _step_at(self, time_s: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the first step that is not before each time."""
        return np.searchsorted(self._times_s, time_s)

    def _start_s(self, begin: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return when what is idle at each step has been released, 0 for now."""
        return np.where(self._ended_s[begin] > 0.0, self._ended_s[begin], self._times_s[begin])

    def _ends_of(self, begin: NDArray[np.intp], limit_s: float) -> NDArray[np.intp]:
        """Return the steps at which a job releases its resources if it starts at each step."""
        return np.maximum(self._step_at(self._start_s(begin) + limit_s), begin + 1)

    def _first(self, job: Job, limit_s: float, until: int) -> int | None:
        """Return the first step before `until` from which a job fits as long as it can run."""
        first_steps, gpus = self._first_steps[job.gang, job.partitions], self._gpus_of(job)
        known = first_steps.known(limit_s)
        begin = max(known, int(self._is_later(job)))
        steps = self._candidates(job, gpus, begin, until, limit_s)
        step = next((step for step in steps if self._fits(job, gpus, step, limit_s)), None)
        if begin == known:
            first_steps.note(limit_s, max(known, until) if step is None else step)
        return step

    def _candidates(self, job: Job, gpus: _IdleGpus, begin: int, until: int, limit_s: float) -> list[int]:
        """Return the steps at which idle resources grow and from which on there are enough GPUs, on whatever nodes."""
        if begin >= until - 1:
            return list(range(begin, until))  # one step is not worth the look ahead
        steps = np.append(begin, begin + 1 + np.flatnonzero(self._ends[begin + 1 : until]))
        short = np.append(np.flatnonzero(gpus.sum < (job.gang.gpu_count or 0)), len(self._times_s))
        next_short = short[np.searchsorted(short, steps)]
        return list(map(int, steps[next_short >= self._ends_of(steps, limit_s)]))

    def _gpus_of(self, job: Job) -> _IdleGpus:
        """Return the idle GPUs of a job's types on the nodes that can take it."""
        key = _key_of(job)
        if key not in self._idle_gpus:
            rows = np.flatnonzero(self._nodes(job) & self._table.usable)
            place = {row: number for number, row in enumerate(rows.tolist())}
            columns = _columns(self._table, key[1])
            by_node = self._idle[:, rows[:, None], columns].sum(axis=2)
            self._idle_gpus[key] = _IdleGpus(columns=columns, place=place, by_node=by_node, sum=by_node.sum(axis=1))
        return self._idle_gpus[key]

    def _fits(self, job: Job, gpus: _IdleGpus, begin: int, limit_s: float) -> bool:
        """Return whether a job fits from a step on, on few enough switches if it waits for those."""
        steps = self._lowest(begin, self._end(begin, limit_s))
        if not _few_nodes_are_enough(job.gang, gpus.by_node, steps):
            return False
        tier = self._fitter(steps).tier_now(job.gang, job.partitions)
        return tier is not None and (job.gang.switches is None or tier <= LocalityTier.LEAF)

    def _lowest(self, begin: int, end: int) -> list[int]:
        """Return the steps from `begin` until `end` at which least is idle: the first, and where jobs begin."""
        return [begin, *self._begins[bisect_right(self._begins, begin) : bisect_left(self._begins, end)]]

    def _fitter(self, steps: list[int]) -> Fitter:
        """Return the fitter for what is idle at all of some steps."""
        key = tuple(steps)
        if key not in self._fitters:
            idle = self._idle[steps[0]].copy()
            for step in steps[1:]:
                np.minimum(idle, self._idle[step], out=idle)
            self._fitters[key] = self._now.with_idle(
                idle[:, :-2].astype(np.int32), idle[:, -2].astype(np.int32), idle[:, -1]
            )
        return self._fitters[key]

    def _slot(self, job: Job, begin: int, limit_s: float) -> Slot:
        end, start_s = self._end(begin, limit_s), float(self._start_s(np.array(begin)))
        fitter = self._fitter(self._lowest(begin, end))
        taken = claim(fitter.table, job.gang, fitter.nodes_now(job.gang, job.partitions))
        return Slot(begin=begin, end=end, start_s=start_s, end_s=start_s + limit_s, claim=taken)

    def _end(self, begin: int, limit_s: float) -> int:
        start_s = float(self._ended_s[begin]) or float(self._times_s[begin])
        return max(int(np.searchsorted(self._times_s, start_s + limit_s)), begin + 1)

    def _hold(self, slot: Slot, sign: int) -> None:
        """Take the resources of a slot, or give them back."""
        taken, steps = slot.claim, slice(slot.begin, slot.end)
        self._idle[steps, taken.rows] -= sign * _in_columns(taken.gpus, taken.cpus, taken.memory_mib)
        rows = taken.rows.tolist()
        for gpus in self._idle_gpus.values():
            # Most are of other partitions.
            counted = [number for number, row in enumerate(rows) if row in gpus.place]
            if counted:
                of_type = sign * taken.gpus[counted][:, gpus.columns].sum(axis=1)
                gpus.by_node[steps, [gpus.place[rows[number]] for number in counted]] -= of_type
                gpus.sum[steps] -= of_type.sum()
        if slot.begin not in self._begins:
            insort(self._begins, slot.begin)
        self._ends[slot.end] = True
        self._fitters = {
            # The steps of a fitter ascend.
            steps: fitter
            for steps, fitter in self._fitters.items()
            if bisect_left(steps, slot.begin) == bisect_left(steps, slot.end)
        }


def _few_nodes_are_enough(gang: GangRequest, by_node: NDArray[np.int64], steps: list[int]) -> bool:
    """Return whether few enough nodes have the GPUs of a gang at all of some steps: a quick check.

    `by_node` `(n_steps, n_nodes)` holds the idle GPUs of its types.
    """
    gpus, most_nodes = np.minimum.reduce(by_node[steps]), min(gang.nodes_max or MOST, by_node.shape[1])
    if len(gang.per_node) == 1:
        # A node with fewer is no part of the gang.
        gpus = gpus[gpus >= gang.per_node[0].count]
        if len(gpus) < gang.nodes_min:
            return False
    largest = np.partition(gpus, -most_nodes)[-most_nodes:] if most_nodes < len(gpus) else gpus
    return int(largest.sum()) >= (gang.gpu_count or 0)


class _NodesByRequest:
    """The nodes of partitions that have GPUs of some types, marked once for jobs alike."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._nodes: dict[tuple[tuple[str, ...], frozenset[str | None]], Flags] = {}

    def __call__(self, job: Job) -> Flags:
        """Mark the nodes of a job: `(n_nodes,)`."""
        return self.of(*_key_of(job))

    def of(self, partitions: tuple[str, ...], types: frozenset[str | None]) -> Flags:
        """Mark the nodes of partitions with GPUs of some types, None for any: `(n_nodes,)`."""
        key = partitions, types
        if key not in self._nodes:
            table = self._table
            named = [number for number, name in enumerate(table.partition_names) if name in partitions]
            has_gpus = table.gpus_total[:, _columns(table, types)].any(axis=1)
            self._nodes[key] = np.asarray(table.partition_member[named].any(axis=0) & has_gpus)
        return self._nodes[key]


def _key_of(job: Job) -> tuple[tuple[str, ...], frozenset[str | None]]:
    """Return the partitions and the GPU types of a job."""
    return job.partitions, frozenset(gpu.gpu_type for gpu in job.gang.all_counts)


def _columns(table: NodeTable, types: frozenset[str | None]) -> list[int]:
    return [column for column, name in enumerate(table.gpu_types) if None in types or name in types]


def _resources(table: NodeTable) -> NDArray[np.int64]:
    """Return what is idle now: GPUs of each type, CPUs and memory, `(n_nodes, n_types + 2)`."""
    return _in_columns(table.gpus_idle, table.cpus_idle, table.memory_idle_mib)


def _in_columns(gpus: Counts, cpus: Counts, memory_mib: Mebibytes) -> NDArray[np.int64]:
    return np.column_stack((gpus, cpus, memory_mib)).astype(np.int64)


def _idle(table: NodeTable, holdings: Holdings, released: NDArray[np.intp], n_steps: int) -> NDArray[np.int64]:
    """Return what is idle at each step once holdings end at `released` `(n_holdings,)`.

    `(n_steps, n_nodes, n_types + 2)`.
    """
    total = _in_columns(table.gpus_total, table.cpus_total, table.memory_total_mib)
    held = _in_columns(holdings.gpus, holdings.cpus, holdings.memory_mib)
    idle = np.zeros((n_steps + 1, *total.shape), dtype=np.int64)
    idle[0] = _resources(table)
    np.add.at(idle, (released, holdings.row), held)
    np.cumsum(idle, axis=0, out=idle)
    np.minimum(idle, total, out=idle)
    if holdings.vouched:
        # Resources that could not be ascribed to one job are free once no job is left on the node.
        emptied = np.full(len(table.names), n_steps, dtype=np.intp)
        emptied[holdings.row] = 0
        np.maximum.at(emptied, holdings.row, released)
        for row in np.flatnonzero(emptied < n_steps).tolist():
            idle[emptied[row] :, row] = total[row]
    return idle[:n_steps]


def _steps_s(resolution_s: float, horizon_s: float, most: int) -> NDArray[np.float64]:
    """Return the ends of the steps up to the horizon, `most` of them if that is possible."""
    share = 0.02
    while True:
        times_s = [0.0]
        while times_s[-1] < horizon_s:
            times_s.append(times_s[-1] + max(resolution_s, share * times_s[-1]))
        if len(times_s) <= most or share > 1.0:
            return np.array(times_s)
        share *= 2
