"""Changes of the nice of pending jobs of the model of slurmctld between its passes, chosen as on snapshots.

Lifts are chosen as in `planning/lifts.py`, exchanges of places as in `planning/exchange.py`; what chooses them here is
`engine/moves.c`, and tests hold both to the same choices.
"""

from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.units import DAY_S
from advisor.features.taken import AskedResources, GpuRates, gpus_taken
from advisor.planning.lifts import Bounds
from advisor.planning.objective import Floats, fair_range, is_weighed
from advisor.sim.engine.tables import (
    LANE_LIFT_DTYPE,
    MOVE_CASE_DTYPE,
    MOVE_SETTINGS_DTYPE,
    NO_FORECASTS,
    USER_WAITS_DTYPE,
    Moves,
    RunTimeForecasts,
)
from advisor.sim.policies.engine_calls import move_jobs, run_moved
from advisor.sim.queueing import PAUSED, ROUND
from advisor.sim.simulated_policy import Problem
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import NONE, State

Rows = NDArray[np.intp]
# The jobs submitted within this time count for what users are owed.
WINDOW_S: Final = 7 * DAY_S


class RunTimes(Protocol):
    """The run times that jobs are expected to have; `tables` are empty where the model is not asked."""

    @property
    def run_s(self) -> Floats:
        """What is expected by the last update, `(n_jobs,)` in seconds; infinity where nothing is known."""

    @property
    def tables(self) -> RunTimeForecasts:
        """What the compiled loop forecasts from."""

    def update(self, state: State, rows: Rows, now: float) -> None:
        """Let `run_s` of pending jobs be what is expected now."""

    def answer(self, state: State) -> None:
        """Run the model on what the compiled loop asks it for."""


@dataclass(frozen=True, slots=True)
class KnownRunTimes:
    """Run times that do not change, `(n_jobs,)` in seconds."""

    run_s: Floats

    @property
    def tables(self) -> RunTimeForecasts:
        """No model."""
        return NO_FORECASTS

    def update(self, state: State, rows: Rows, now: float) -> None:
        """Leave them."""

    def answer(self, state: State) -> None:
        """Nothing is asked for."""


class Changer(Protocol):
    """Changes jobs between the passes of slurmctld."""

    @property
    def slurm(self) -> Slurm:
        """What runs between its changes."""

    def cycle(self, state: State, now: float) -> None:
        """Change jobs."""


def changed_slurm(changer: Changer, every_s: float, state: State, until: float) -> int:
    """Run the compiled loop up to an instant, with changes every `every_s` while jobs are pending."""
    while True:
        now = state.tally["now"][0]
        cycle_time = (now // every_s + 1.0) * every_s
        if cycle_time <= now:  # by rounding
            cycle_time += every_s
        stopped = run_slurm(state, changer.slurm, min(until, cycle_time))
        if stopped != PAUSED or until < cycle_time:
            return stopped
        if state.tally["pending"][0]:
            changer.cycle(state, cycle_time)


class Mover:
    """Changes the nice of pending jobs, pool by pool; arrays are `(n_jobs,)`, and jobs without GPUs are left alone.

    Jobs of one user or account exchange their places where the limits say so, and are lifted elsewhere. `pool` and
    `taken` are the pool of each job and the GPUs that it takes, counted as on snapshots, `capacity` is `(n_pools,)`.
    `nice` are the values of the users, and `until` is when the change of a job ends, 0 without one.
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
        self.moves = self._moves(problem)

    def run(self, every_s: float, state: State, until: float) -> int:
        """Run the compiled loop up to an instant, with changes every `every_s` while jobs are pending."""
        tables = self.run_times.tables
        while (stopped := run_moved(state, self.slurm, self.moves, tables, every_s, until)) == ROUND:
            self.run_times.answer(state)
            move_jobs(state, self.slurm, self.moves, state.tally["now"][0])
        return stopped

    def cycle(self, state: State, now: float) -> None:
        """Change the jobs of each pool, and let slurmctld sort its line."""
        rows = self.rows(state)
        if len(rows) > 1:
            self.run_times.update(state, rows, now)
        move_jobs(state, self.slurm, self.moves, now)

    def rows(self, state: State) -> Rows:
        """Return the rows of the pending GPU jobs in the line, once each."""
        entries = self.slurm.line[: int(self.slurm.control["lined"][0])]
        rows = entries[entries < len(state.jobs)].astype(np.intp)
        return rows[state.jobs["gpus"][rows] > 0]

    def _moves(self, problem: Problem) -> Moves:
        asked, count = problem.trace.jobs, len(problem.state.jobs)
        users = int(asked["user"].max(initial=0)) + 1
        exchanges = not self.limits.lifts_pass_others
        # Where users do not count, no start without advice does.
        counts_users = exchanges or is_weighed(self.limits)
        start_time = problem.plain_outcomes()["start_time"] if counts_users else np.full(count, np.inf)
        return Moves(
            settings=self._settings(problem.options.twin_every_s if counts_users else np.inf),
            capacity=self.capacity,
            pool=self.pool,
            taken=self.taken.astype(np.float64),
            run_s=np.asarray(self.run_times.run_s, np.float64),  # the same array, which updates change
            nice=self.nice,
            until=self.until,
            submit_time=asked["submit_time"].astype(np.float64),
            plain_start_time=np.where(np.isfinite(start_time), start_time, np.inf),
            waits=np.zeros(users, USER_WAITS_DTYPE),
            group=group_of(problem) if exchanges else np.full(count, NONE, np.int32),
            partner=np.full(count, NONE, np.int32),
            has_given=np.zeros(count, np.int8),
            lane=np.zeros(2 * count, LANE_LIFT_DTYPE),
            waiting=np.zeros(count, MOVE_CASE_DTYPE),
            order=np.zeros(count, np.int32),
            by_priority=np.zeros(count, np.int32),
            spare=np.zeros(count, np.int32),
            sorted_by=np.zeros(count),
            of_user=np.zeros(users),
        )

    def _settings(self, count_every_s: float) -> NDArray[np.void]:
        limits, planning, control = self.limits, self.planning, self.slurm.control[0]
        # Of a pool of one GPU: the time that all work at most.
        bounds = Bounds.of(planning, limits, 1.0)
        values: dict[str, Any] = {
            "decades": planning.priority_decades,
            "scale": fair_range((control["weight_fairshare"], control["weight_age"])),
            "patience_s": planning.patience_s,
            "max_credit": planning.max_credit,
            "lease_s": planning.lift_lease_s,
            "min_age_s": limits.min_job_age_s,
            "lateness_s": limits.max_lateness_s,
            "lateness_ratio": limits.max_lateness_ratio,
            "user_ratio": bounds.user_ratio,
            "work_s": bounds.gpu_s,
            "window_s": limits.fairness_window_s,
            "agreed_s": limits.agreed_delay_s,
            "agreed_ratio": limits.agreed_delay_ratio,
            "owed_window_s": WINDOW_S,
            "count_every_s": count_every_s,
            "counted_time": -np.inf,
            "places": bounds.places,
            "is_weighed": is_weighed(limits),
            "is_lane": limits.is_lane,
            "exchanges": not limits.lifts_pass_others,
        }
        settings = np.zeros(1, MOVE_SETTINGS_DTYPE)
        for name, value in values.items():
            settings[name] = value
        return settings


def group_of(problem: Problem) -> NDArray[np.int32]:
    """Return the user of each job, or its account, as the fairness names it, `(n_jobs,)`; NONE if it has no name."""
    jobs, trace = problem.state.jobs, problem.trace
    within_users = problem.options.limits.fairness == "user"
    group, names = (jobs["user"], trace.users) if within_users else (jobs["account"], trace.accounts)
    has_name = np.array([bool(name) for name in names], dtype=np.bool_)
    return np.where(has_name[group], group, NONE).astype(np.int32)


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
