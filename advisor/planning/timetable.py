"""Schedules pending jobs by their time limits, node by node, as Slurm's backfill plans them.

Time ahead is divided into steps: the first is now, the others are as long as backfill's resolution or, if that is
longer, a fiftieth of the time ahead (more on large clusters). A job holds its resources until the end of the step in
which it ends.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from dataclasses import field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import MOST, GangRequest
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.features.capacity import Fitter
from advisor.features.claims import Claim, claim
from advisor.features.nodes import Counts, Flags, Mebibytes, NodeTable
from advisor.planning.earliest import Holdings

# The most numbers in the array of idle resources, 8 bytes each.
_MOST_CELLS: Final = 4_000_000

# An overdue job ends within a second.
_LEAST_S: Final = 1.0

_Request = tuple[GangRequest, tuple[str, ...]]
# The partitions and the GPU types of a job, None for any type.
_Key = tuple[tuple[str, ...], frozenset[str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The resources that a job holds from step `begin` until step `end`; seconds count from the snapshot."""

    begin: int
    end: int
    start_s: float
    end_s: float
    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The nodes of some partitions that have GPUs of some types; jobs on other nodes do not count.

    `idle` and `sum` count the idle GPUs of these types on its usable nodes at each step. `begins` are the steps,
    ascending, at which jobs begin on its nodes. What is idle there grows only at the `ends` of jobs, all that is
    released in a step by the time `ended_s`, the end of the step at the latest. `fitters` are for what is idle at all
    of some steps.
    """

    times_s: NDArray[np.float64]  # (n_steps,)
    columns: list[int]  # of the types
    place: dict[int, int]  # of each row of the table among the usable nodes
    idle: NDArray[np.int64]  # (n_steps, n_usable)
    sum: NDArray[np.int64]  # (n_steps,)
    ends: NDArray[np.bool_]  # (n_steps + 1,)
    ended_s: NDArray[np.float64]  # (n_steps + 1,), 0 where nothing is released
    fitters: dict[tuple[int, ...], Fitter]
    begins: list[int] = field(default_factory=list)

    def start_s(self, begin: int) -> float:
        """Return when what is idle at a step has been released, 0 for now."""
        return float(self.ended_s[begin]) or float(self.times_s[begin])

    def end(self, begin: int, limit_s: float) -> int:
        """Return the step at which a job that starts at a step releases its resources."""
        return max(int(self.times_s.searchsorted(self.start_s(begin) + limit_s)), begin + 1)

    def lowest(self, begin: int, limit_s: float) -> tuple[int, ...]:
        """Return the steps of a job at which least is idle: the first, and where other jobs begin."""
        until = bisect_left(self.begins, self.end(begin, limit_s))
        return (begin, *self.begins[bisect_right(self.begins, begin) : until])

    def candidates(self, gpus: int, begin: int, until: int, limit_s: float) -> list[int]:
        """Return the steps at which idle resources grow and from which on there are enough GPUs, on whatever nodes."""
        if begin >= until - 1:
            return list(range(begin, until))  # one step is not worth the look ahead
        steps = np.append(begin, begin + 1 + np.flatnonzero(self.ends[begin + 1 : until]))
        short = np.append(np.flatnonzero(self.sum < gpus), len(self.times_s))
        start_s = np.where(self.ended_s[steps] > 0.0, self.ended_s[steps], self.times_s[steps])
        ends = np.maximum(self.times_s.searchsorted(start_s + limit_s), steps + 1)
        return list(map(int, steps[short[short.searchsorted(steps)] >= ends]))

    def hold(self, slot: Slot) -> None:
        """Take the resources of a slot."""
        taken, steps = slot.claim, slice(slot.begin, slot.end)
        counted = [(number, self.place[row]) for number, row in enumerate(taken.rows.tolist()) if row in self.place]
        if counted:
            numbers, places = map(list, zip(*counted, strict=True))
            gpus = taken.gpus[numbers][:, self.columns].sum(axis=1)
            self.idle[steps, places] -= gpus
            self.sum[steps] -= gpus.sum()
        if slot.begin not in self.begins:
            insort(self.begins, slot.begin)
        self.ends[slot.end] = True
        self.ended_s[slot.end] = max(self.ended_s[slot.end], slot.end_s)
        # The steps of a fitter ascend.
        for key in [key for key in self.fitters if bisect_left(key, slot.begin) != bisect_left(key, slot.end)]:
            del self.fitters[key]


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


class Timetable:
    """The idle resources of each step, less those of the jobs that were added.

    `fitter` computes where gangs fit now, and `holdings` are the resources of running jobs until their time limits.
    Jobs are scheduled up to `horizon_s` ahead.
    """

    def __init__(self, snapshot: Snapshot, fitter: Fitter, holdings: Holdings, horizon_s: float) -> None:
        self._snapshot, self._table = snapshot, fitter.table
        most_steps = _MOST_CELLS // max(1, _resources(self._table).size)
        self._times_s = _steps_s(max(1.0, snapshot.config.backfill_resolution_s), horizon_s, most_steps)
        self._ends_s = np.maximum(holdings.end_time - snapshot.taken_at, _LEAST_S)
        self._released = self._times_s.searchsorted(self._ends_s)
        self._holdings = holdings
        self._idle = _idle(self._table, holdings, self._released, len(self._times_s))
        self._slots: list[Slot] = []
        # By partition, for how many waiting jobs backfill holds nodes.
        self._held = Counter[str]()
        self._now = fitter
        self._nodes: dict[_Key, Flags] = {}
        self._parts: dict[_Key, _Part] = {}
        self._parts_by_row: defaultdict[int, list[_Part]] = defaultdict(list)
        self._first_steps: defaultdict[_Request, _FirstSteps] = defaultdict(_FirstSteps)

    def starts_now(self, job: Job, limit_s: float) -> bool:
        """Return whether slurmctld can start a job now; not if its own plan has a later start for it."""
        return self._first(job, limit_s, 1) == 0

    def fitter(self, job: Job, limit_s: float) -> Fitter:
        """Return the fitter for jobs of a job's partitions and GPU types that start now, with a time limit."""
        part = self._part_of(job)
        return self._fitter(part, part.lowest(0, limit_s))

    def slot(self, job: Job, limit_s: float) -> Slot | None:
        """Return the first slot that holds a job for its time limit; None where it is beyond the horizon."""
        begin = self._first(job, limit_s, len(self._times_s))
        return None if begin is None else self._slot(job, begin, limit_s)

    def slot_now(self, job: Job, limit_s: float) -> Slot | None:
        """Return the slot of a job that slurmctld can start now, None if it cannot."""
        return self._slot(job, 0, limit_s) if self.starts_now(job, limit_s) else None

    def add(self, slot: Slot) -> None:
        """Take the resources of a slot from what is idle."""
        taken = slot.claim
        self._idle[slot.begin : slot.end, taken.rows] -= _in_columns(taken.gpus, taken.cpus, taken.memory_mib)
        touched = {id(part): part for row in taken.rows.tolist() for part in self._parts_by_row[row]}
        for part in touched.values():
            part.hold(slot)
        self._slots.append(slot)

    def reserve(self, job: Job, limit_s: float) -> None:
        """Let a waiting job hold the nodes on which it fits first, if backfill holds nodes for it."""
        config = self._snapshot.config
        is_young = job.queueing_delay_s(self._snapshot.taken_at) < config.reserves_after_s
        if is_young or job.is_below(config.reserves_from_priority):
            return
        if config.reserves_first and all(self._held[name] >= config.reserves_first for name in job.partitions):
            return
        if (slot := self.slot(job, limit_s)) is not None:
            self.add(slot)
            self._held.update(job.partitions)

    def nodes(self, job: Job) -> Flags:
        """Mark the nodes that a job can use: `(n_nodes,)`."""
        partitions, types = key = _key_of(job)
        if key not in self._nodes:
            named = [number for number, name in enumerate(self._table.partition_names) if name in partitions]
            has_gpus = self._table.gpus_total[:, self._columns(types)].any(axis=1)
            self._nodes[key] = np.asarray(self._table.partition_member[named].any(axis=0) & has_gpus)
        return self._nodes[key]

    def _columns(self, types: frozenset[str | None]) -> list[int]:
        return [column for column, name in enumerate(self._table.gpu_types) if None in types or name in types]

    def _first(self, job: Job, limit_s: float, until: int) -> int | None:
        """Return the first step before `until` from which a job fits as long as it can run."""
        first_steps, part = self._first_steps[job.gang, job.partitions], self._part_of(job)
        known = first_steps.known(limit_s)
        begin = max(known, int(job.is_planned_after(self._snapshot.taken_at)))
        steps = part.candidates(job.gang.gpu_count or 0, begin, until, limit_s)
        step = next((step for step in steps if self._fits(job, part, step, limit_s)), None)
        if begin == known:
            first_steps.note(limit_s, max(known, until) if step is None else step)
        return step

    def _part_of(self, job: Job) -> _Part:
        """Return the nodes that a job can use."""
        key = _key_of(job)
        if key in self._parts:
            return self._parts[key]
        columns, n_steps = self._columns(key[1]), len(self._times_s)
        rows = np.flatnonzero(self.nodes(job) & self._table.usable)
        part = self._parts[key] = _Part(
            times_s=self._times_s,
            columns=columns,
            place={row: number for number, row in enumerate(rows.tolist())},
            idle=np.zeros((n_steps, len(rows)), dtype=np.int64),
            sum=np.zeros(n_steps, dtype=np.int64),
            ends=np.zeros(n_steps + 1, dtype=np.bool_),
            ended_s=np.zeros(n_steps + 1),
            fitters={(0,): self._now},
        )
        there = np.isin(self._holdings.row, rows)
        part.ends[self._released[there]] = True
        np.maximum.at(part.ended_s, self._released[there], self._ends_s[there])
        for slot in self._slots:
            if not part.place.keys().isdisjoint(slot.claim.rows.tolist()):
                part.hold(slot)
        # These slots count among the resources already.
        part.idle[:] = self._idle[:, rows[:, None], columns].sum(axis=2)
        part.sum[:] = part.idle.sum(axis=1)
        for row in part.place:
            self._parts_by_row[row].append(part)
        return part

    def _fits(self, job: Job, part: _Part, begin: int, limit_s: float) -> bool:
        """Return whether a job fits from a step on, on few enough switches if it waits for those."""
        steps = part.lowest(begin, limit_s)
        if not _few_nodes_are_enough(job.gang, part.idle, steps):
            return False
        return self._fitter(part, steps).has_room(job)

    def _fitter(self, part: _Part, steps: tuple[int, ...]) -> Fitter:
        """Return the fitter for what is idle in a part at all of some steps."""
        if steps not in part.fitters:
            idle = self._idle[steps[0]].copy()
            for step in steps[1:]:
                np.minimum(idle, self._idle[step], out=idle)
            part.fitters[steps] = self._now.with_idle(
                idle[:, :-2].astype(np.int32), idle[:, -2].astype(np.int32), idle[:, -1]
            )
        return part.fitters[steps]

    def _slot(self, job: Job, begin: int, limit_s: float) -> Slot:
        part = self._part_of(job)
        fitter, start_s = self._fitter(part, part.lowest(begin, limit_s)), part.start_s(begin)
        taken = claim(fitter.table, job.gang, fitter.nodes_now(job.gang, job.partitions))
        end = part.end(begin, limit_s)
        return Slot(begin=begin, end=end, start_s=start_s, end_s=start_s + limit_s, claim=taken)


def _key_of(job: Job) -> _Key:
    return job.partitions, frozenset(gpu.gpu_type for gpu in job.gang.all_counts)


def _few_nodes_are_enough(gang: GangRequest, by_node: NDArray[np.int64], steps: tuple[int, ...]) -> bool:
    """Return whether few enough nodes have the GPUs of a gang at all of some steps: a quick check.

    `by_node` `(n_steps, n_nodes)` holds the idle GPUs of its types.
    """
    gpus = by_node[steps[0]] if len(steps) == 1 else np.minimum.reduce(by_node[list(steps)])
    most_nodes = min(gang.nodes_max or MOST, by_node.shape[1])
    if len(gang.per_node) == 1:
        # A node with fewer is no part of the gang.
        gpus = gpus[gpus >= gang.per_node[0].count]
        if len(gpus) < gang.nodes_min:
            return False
    largest = np.partition(gpus, -most_nodes)[-most_nodes:] if most_nodes < len(gpus) else gpus
    return int(largest.sum()) >= (gang.gpu_count or 0)


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
