"""Slurm with this advisor's lifts alone, on the arrays of a simulation: the same choices as on snapshots, and fast."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.planning.lifts import lifts
from advisor.planning.objective import Floats, Objective, Waiting, fair_range
from advisor.settings import Fairness, Limits
from advisor.sim.learned_run_times import LearnedRunTimes
from advisor.sim.plain_waits import PlainWaits
from advisor.sim.priority import prioritise, sort_line
from advisor.sim.queueing import PAUSED
from advisor.sim.simulated_policy import Problem, drive, leave_out
from advisor.sim.slurm_placement import pick_now
from advisor.sim.slurm_state import Slurm, build_slurm
from advisor.sim.slurmctld import ask_for_pass, run_slurm
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftedSlurm:
    """The model of slurmctld whose pending jobs are lifted every `advise_every_s`.

    `fairness` is used in place of that of the options.
    """

    name: str
    summary: str
    run_times: Callable[[Problem, Slurm], RunTimes]
    fairness: Fairness | None = None
    requeue_loses_work: bool = True

    def run(self, problem: Problem) -> State:
        """Run the compiled loop from cycle to cycle."""
        if self.fairness is not None:
            limits = replace(problem.options.limits, fairness=self.fairness)
            problem = replace(problem, options=replace(problem.options, limits=limits))
        slurm = build_slurm(problem.state, problem.trace, problem.cluster)
        leave_out(problem.state, lambda row: pick_now(problem.state, slurm, row, np.inf))
        lifter = Lifter.of(problem, slurm, self.run_times(problem, slurm))
        every_s = problem.options.advise_every_s
        return drive(problem, problem.state, lambda state, until: _follow(lifter, state, until, every_s))


def _follow(lifter: "Lifter", state: State, until: float, every_s: float) -> int:
    """Run the compiled loop up to an instant, with lifts every `every_s`."""
    while True:
        cycle_time = (state.tally["now"][0] // every_s + 1.0) * every_s
        stopped = run_slurm(state, lifter.slurm, min(until, cycle_time))
        if stopped != PAUSED or until < cycle_time:
            return stopped
        if state.tally["pending"][0]:
            lifter.cycle(state, cycle_time)


@dataclass(slots=True, kw_only=True)
class Lifter:
    """Lifts pending jobs; arrays are `(n_jobs,)`, and jobs without GPUs are left alone."""

    slurm: Slurm
    objective: Objective
    places: int
    lease_s: float
    limits: Limits
    pool: NDArray[np.int32]
    capacity: Floats  # (n_pools,)
    run_times: RunTimes
    plain_waits: PlainWaits | None
    nice: NDArray[np.int32]  # of the users
    until: Floats  # when the lift of a job ends; 0: not lifted

    @classmethod
    def of(cls, problem: Problem, slurm: Slurm, run_times: RunTimes) -> "Lifter":
        """Set up the tables of a run."""
        jobs, planning, limits = problem.state.jobs, problem.options.planning, problem.options.limits
        control, is_weighed = slurm.control[0], limits.fairness != "site"
        pool, capacity = _pools(problem, slurm)
        return cls(
            slurm=slurm,
            objective=Objective(
                decades=planning.priority_decades,
                scale=fair_range((control["weight_fairshare"], control["weight_age"])),
                is_weighed=is_weighed,
            ),
            places=planning.lift_places,
            lease_s=planning.lift_lease_s,
            limits=limits,
            pool=pool,
            capacity=capacity,
            run_times=run_times,
            plain_waits=PlainWaits.of(problem) if is_weighed else None,
            nice=jobs["nice"].copy(),
            until=np.zeros(len(jobs)),
        )

    def cycle(self, state: State, now: float) -> None:
        """End the lifts that are due, and lift the jobs that should start next."""
        rows = self._rows(state)
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

    def _rows(self, state: State) -> Rows:
        """Return the rows of the pending GPU jobs in the line, once each."""
        entries = self.slurm.line[: int(self.slurm.control["lined"][0])]
        rows = entries[entries < len(state.jobs)].astype(np.intp)
        return rows[state.jobs["gpus"][rows] > 0]

    def _cycle_of(self, state: State, rows: Rows, run_s: Floats, now: float, capacity: float) -> bool:
        """Put back and lift jobs of one pool; return whether any was changed."""
        jobs, until = state.jobs, self.until[rows]
        due = rows[(until > 0.0) & (until <= now)]
        if len(due):
            self._write(state, due, self.nice[due], now)
            self.until[due] = 0.0
        priority, nice = jobs["priority"][rows], jobs["nice"][rows]
        age_s = now - jobs["submit_time"][rows]
        plain = self.plain_waits
        is_overdue = np.zeros(len(rows), np.bool_) if plain is None else plain.is_overdue(rows, now, self.limits)
        line = Waiting(
            priority=priority + (nice - self.nice[rows]),
            gpu_s=run_s * jobs["gpus"][rows],
            tasks=np.ones(len(rows)),
            run_s=run_s,
            waited_s=now - self.slurm.eligible_time[rows],
            owed=np.zeros(len(rows)) if plain is None else plain.owed(state, rows, now),
            is_overdue=is_overdue,
            capacity=capacity,
        )
        chosen = lifts(
            self.objective.keys(line),
            priority,
            self.until[rows] > 0.0,
            age_s >= self.limits.min_job_age_s,
            places=self.places,
            scale=self.objective.scale,
        )
        lifted = rows[chosen.row]
        if len(lifted):
            self._write(state, lifted, nice[chosen.row] + priority[chosen.row] - chosen.priority, now)
            self.until[lifted] = now + self.lease_s
        return bool(len(due) + len(lifted))

    def _write(self, state: State, rows: Rows, nice: Floats | NDArray[np.int32], now: float) -> None:
        """Set the nice values of jobs."""
        state.jobs["nice"][rows] = nice
        for row in rows.tolist():
            prioritise(state, self.slurm, row, now)
        state.tally["changes"] += len(rows)


def _pools(problem: Problem, slurm: Slurm) -> tuple[NDArray[np.int32], Floats]:
    """Return the pool of each job, by the tier and the nodes of its first partition, and the GPUs of each pool."""
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
    return pool_of_partition[slurm.partition], np.maximum(1.0, capacity)


def by_limits(problem: Problem, _slurm: Slurm) -> RunTimes:
    """Return the run times that are expected without forecasts: a share of the time limits."""
    return KnownRunTimes(problem.state.jobs["limit_s"] * problem.options.planning.used_limit_ratio_low)


def by_run_times(problem: Problem, _slurm: Slurm) -> RunTimes:
    """Return the true run times, as far as the time limits let jobs run."""
    return KnownRunTimes(np.minimum(problem.state.jobs["work_s"], problem.state.jobs["limit_s"]))


BY_LIMITS = LiftedSlurm(
    name="lift",
    summary="Slurm with this advisor's lifts alone, run times a share of the time limits",
    run_times=by_limits,
)
BY_FORECASTS = LiftedSlurm(
    name="lift-forecast",
    summary="lift, run times forecast by the shipped model and the jobs that ended so far",
    run_times=LearnedRunTimes,
)
BY_RUN_TIMES = LiftedSlurm(
    name="lift-oracle",
    summary="lift, run times the truth",
    run_times=by_run_times,
)
BY_SIZE = LiftedSlurm(
    name="lift-site",
    summary="lift at fairness site: by size alone",
    run_times=by_limits,
    fairness="site",
)
BY_TRUE_SIZE = LiftedSlurm(
    name="lift-site-oracle",
    summary="lift at fairness site, run times the truth",
    run_times=by_run_times,
    fairness="site",
)
