"""The frame of policies that change the nice of pending jobs of the model of slurmctld between its passes."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.domain.units import DAY_S
from advisor.features.taken import AskedResources, GpuRates, gpus_taken
from advisor.planning.objective import Floats, is_overdue, owed
from advisor.settings import Limits
from advisor.sim.simulated_policy import Problem
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import ask_for_pass, prioritise, sort_line
from advisor.sim.state import State

Rows = NDArray[np.intp]


class RunTimes(Protocol):
    """The run times that jobs are expected to have."""

    def expected_s(self, state: State, rows: Rows, now: float) -> Floats:
        """Return the expected run times of pending jobs, in seconds; infinity where none is known."""


@dataclass(frozen=True, slots=True)
class KnownRunTimes:
    """Run times that do not change, `(n_jobs,)` in seconds."""

    run_s: Floats

    def expected_s(self, _state: State, rows: Rows, _now: float) -> Floats:
        """Return the run times of some rows."""
        return np.asarray(self.run_s[rows])


class Mover:
    """Changes the nice of pending jobs, pool by pool; arrays are `(n_jobs,)`, and jobs without GPUs are left alone.

    `pool` and `taken` are the pool of each job and the GPUs that it takes, counted as on snapshots, `capacity` is
    `(n_pools,)`. `nice` are the values of the users, and `until` is when the change of a job ends, 0 without one.
    """

    def __init__(self, problem: Problem, slurm: Slurm, run_times: RunTimes) -> None:
        """Set up the tables of a run."""
        jobs = problem.state.jobs
        self.slurm, self.run_times = slurm, run_times
        self.limits, self.planning = problem.options.limits, problem.options.planning
        self.pool, self.capacity, nodes = pools_of(problem, slurm)
        self.taken = taken_by(jobs, rates_of(problem.state, self.pool, nodes))
        self.nice: NDArray[np.int32] = jobs["nice"].copy()
        self.until: Floats = np.zeros(len(jobs))

    def cycle(self, state: State, now: float) -> None:
        """Change the jobs of each pool, and let slurmctld sort its line."""
        rows = self.rows(state)
        if len(rows) < 2:
            return
        run_s = self.run_times.expected_s(state, rows, now)
        pools = self.pool[rows]
        written = False
        for pool in range(len(self.capacity)):
            mine = np.flatnonzero((pools == pool) & np.isfinite(run_s))
            if len(mine) > 1:
                written |= self._cycle_of(state, rows[mine], run_s[mine], now, self.capacity[pool])
        if written:
            sort_line(state, self.slurm)
            ask_for_pass(self.slurm, now)

    @abstractmethod
    def _cycle_of(self, state: State, rows: Rows, run_s: Floats, now: float, capacity: float) -> bool:
        """Change jobs of one pool, given as rows in their present order; return whether any was changed."""

    def rows(self, state: State) -> Rows:
        """Return the rows of the pending GPU jobs in the line, once each."""
        entries = self.slurm.line[: int(self.slurm.control["lined"][0])]
        rows = entries[entries < len(state.jobs)].astype(np.intp)
        return rows[state.jobs["gpus"][rows] > 0]

    def _write(self, state: State, rows: Rows, nice: Floats | NDArray[np.int32], now: float) -> None:
        """Set the nice values of jobs."""
        state.jobs["nice"][rows] = nice
        for row in rows.tolist():
            prioritise(state, self.slurm, row, now)
        state.tally["changes"] += len(rows)


def pools_of(problem: Problem, slurm: Slurm) -> tuple[NDArray[np.int32], Floats, NDArray[np.int8]]:
    """Return the pool of each job, by the tier and the nodes of its first partition, and what pools have.

    These are the GPUs of each pool, `(n_pools,)`, and its nodes, `(n_pools, n_nodes)`.
    """
    groups: list[tuple[int, NDArray[np.int8]]] = []
    pool_of_partition = np.empty(len(slurm.partitions), np.int32)
    for place, (partition, members) in enumerate(zip(slurm.partitions, slurm.members, strict=True)):
        same = [
            number
            for number, (tier, nodes) in enumerate(groups)
            if tier == partition["tier"] and (nodes & members).any()
        ]
        if not same:
            groups.append((int(partition["tier"]), members.copy()))
        pool_of_partition[place] = same[0] if same else len(groups) - 1
        if same:
            groups[same[0]] = (groups[same[0]][0], groups[same[0]][1] | members)
    capacity = np.array([float((nodes * problem.state.nodes["gpus"]).sum()) for _, nodes in groups])
    nodes = np.array([of_group for _, of_group in groups])
    return pool_of_partition[slurm.partition], np.maximum(1.0, capacity), nodes


def taken_by(jobs: NDArray[np.void], rates: GpuRates) -> Floats:
    """Return the GPUs that jobs take, `(n_jobs,)`; `rates` are those of the nodes that each can start on."""
    nodes, gpus = jobs["nodes_min"].astype(np.float64), jobs["gpus"].astype(np.float64)
    is_fixed = (jobs["nodes_min"] == jobs["nodes_max"]) & (jobs["gpus"] % np.maximum(jobs["nodes_min"], 1) == 0)
    on_node = np.where(is_fixed, gpus / np.maximum(nodes, 1.0), np.minimum(gpus, jobs["node_gpus"]))
    asked = AskedResources(
        gpus=gpus,
        nodes=nodes,
        cpus=np.maximum(nodes * jobs["cpus_per_node"], gpus * jobs["cpus_per_gpu"]),
        memory_mib=np.maximum(jobs["memory_mib_per_node"], on_node * jobs["memory_mib_per_gpu"]),
        whole=jobs["exclusive"] == 1,
    )
    return gpus_taken(asked, rates)


def rates_of(state: State, pool: NDArray[np.int32], pool_nodes: NDArray[np.int8]) -> GpuRates:
    """Return the rates of the nodes that each job can start on: those of its pool with GPUs of its type."""
    nodes = state.nodes
    types = int(nodes["gpu_type"].max(initial=0)) + 1
    has_type = np.vstack([nodes["gpu_type"] == np.arange(types)[:, None], np.ones((1, len(nodes)), np.bool_)])
    rates = GpuRates.of(
        ((pool_nodes[:, None, :] > 0) & has_type[None, :, :]).reshape(len(pool_nodes) * (types + 1), len(nodes)),
        *(nodes[name].astype(np.float64) for name in ("gpus", "cpus", "memory_mib")),
    )
    gpu_type = state.jobs["gpu_type"]
    is_known = (gpu_type >= 0) & (gpu_type < types)
    return rates.take(pool.astype(np.intp) * (types + 1) + np.where(is_known, gpu_type, types))


# The jobs submitted within this time count.
WINDOW_S: Final = 7 * DAY_S


class PlainWaits:
    """What users are owed: by how much their jobs have waited longer than under plain Slurm, which ran before.

    Only what plain Slurm has done up to the present instant counts.
    """

    def __init__(
        self, submit_time: Floats, user: NDArray[np.integer], start_time: Floats, limits: Limits, *, every_s: float
    ) -> None:
        """Take the jobs, `(n_jobs,)` by submission, and their starts under plain Slurm, NaN for none.

        The waits are added up every `every_s`.
        """
        self._submit_time = submit_time
        self._user = user
        self._users = int(user.max(initial=0)) + 1
        self._start_time = np.where(np.isfinite(start_time), start_time, np.inf)
        self._limits = limits
        self._every_s = every_s
        self._counted_time = -np.inf
        self._owed = np.zeros(self._users)

    @classmethod
    def of(cls, problem: Problem) -> "PlainWaits":
        """Run plain Slurm on a problem."""
        asked, options = problem.trace.jobs, problem.options
        return cls(
            asked["submit_time"],
            asked["user"],
            problem.plain_outcomes()["start_time"],
            options.limits,
            every_s=options.twin_every_s,
        )

    def owed(self, state: State, rows: NDArray[np.intp], now: float) -> Floats:
        """Return what the users of some rows are owed, as the objective takes it."""
        if now - self._counted_time >= self._every_s:
            self._owed, self._counted_time = self._count(state, now), now
        return np.asarray(self._owed[self._user[rows]])

    def is_overdue(self, rows: NDArray[np.intp], now: float) -> NDArray[np.bool_]:
        """Return which rows have not started by their start under plain Slurm and the bound on lateness after it."""
        return is_overdue(now, self._start_time[rows], self._submit_time[rows], self._limits)

    def _count(self, state: State, now: float) -> Floats:
        first, last = np.searchsorted(self._submit_time, (now - WINDOW_S, now), side="right")
        seen = slice(int(first), int(last))
        started = state.jobs["start_time"][seen]
        waited_until = np.where(np.isfinite(started), np.minimum(started, now), now)
        start_time = self._start_time[seen]
        user = self._user[seen]
        given_s, plain_s, jobs = (
            np.bincount(user, weights, minlength=self._users).astype(np.float64)
            for weights in (
                waited_until - np.minimum(start_time, now),
                np.minimum(start_time, now) - self._submit_time[seen],
                np.ones(len(user)),
            )
        )
        return owed(given_s, plain_s, jobs, self._limits)
