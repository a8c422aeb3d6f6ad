"""Slurm with this advisor's lifts alone, on the arrays of the simulation: the same choices as on snapshots, and fast."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.planning.lifts import Floats, lifts
from advisor.planning.objective import Objective, Waiting
from advisor.sim.priority import prioritise, sort_line
from advisor.sim.queueing import PAUSED
from advisor.sim.simulated_policy import Problem, drive, leave_out
from advisor.sim.slurm_placement import pick_now
from advisor.sim.slurm_state import Slurm, build_slurm
from advisor.sim.slurmctld import ask_for_pass, run_slurm
from advisor.sim.state import State

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftedSlurm:
    """The model of slurmctld whose pending jobs are lifted every `advise_every_s`.

    `run_s` returns the expected run times of all jobs, `(n_jobs,)`, infinite where none is known.
    """

    name: str
    summary: str
    run_s: Callable[[Problem], Floats]
    requeue_loses_work: bool = True

    def run(self, problem: Problem) -> State:
        """Run the compiled loop from cycle to cycle."""
        slurm = build_slurm(problem.state, problem.trace, problem.cluster)
        leave_out(problem.state, lambda row: pick_now(problem.state, slurm, row, np.inf))
        lifter = Lifter.of(problem, slurm, self.run_s(problem))
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
    min_age_s: float
    pool: NDArray[np.int32]
    capacity: Floats  # (n_pools,)
    run_s: Floats
    gpu_s: Floats
    nice: NDArray[np.int32]  # of the users
    until: Floats  # when the lift of a job ends; 0: not lifted

    @classmethod
    def of(cls, problem: Problem, slurm: Slurm, run_s: Floats) -> "Lifter":
        """Set up the tables of a run."""
        jobs, planning, limits = problem.state.jobs, problem.options.planning, problem.options.limits
        control = slurm.control[0]
        pool, capacity = _pools(problem, slurm)
        return cls(
            slurm=slurm,
            objective=Objective(
                decades=planning.priority_decades,
                scale=max(1.0, float(control["weight_fairshare"] + control["weight_age"])),
                weighs_turn=limits.fairness != "site",
            ),
            places=planning.lift_places,
            lease_s=planning.lift_lease_s,
            min_age_s=limits.min_job_age_s,
            pool=pool,
            capacity=capacity,
            run_s=run_s,
            gpu_s=np.where(jobs["gpus"] > 0, run_s * np.maximum(jobs["gpus"], 1), np.inf),
            nice=jobs["nice"].copy(),
            until=np.zeros(len(jobs)),
        )

    def cycle(self, state: State, now: float) -> None:
        """End the lifts that are due, and lift the jobs that should start next."""
        rows = self._rows(state)
        if len(self.capacity) == 1:
            written = self._cycle_of(state, rows, now, 0)
        else:
            pools = self.pool[rows]
            written = any([self._cycle_of(state, rows[pools == pool], now, pool) for pool in np.unique(pools).tolist()])
        if written:
            sort_line(state, self.slurm)
            ask_for_pass(self.slurm, now)

    def _rows(self, state: State) -> Rows:
        """Return the rows of the pending jobs in the line, once each."""
        entries = self.slurm.line[: int(self.slurm.control["lined"][0])]
        return entries[entries < len(state.jobs)].astype(np.intp)

    def _cycle_of(self, state: State, rows: Rows, now: float, pool: int) -> bool:
        """Put back and lift jobs of one pool; return whether any was changed."""
        jobs, until = state.jobs, self.until[rows]
        due = rows[(until > 0.0) & (until <= now)]
        if len(due):
            self._write(state, due, self.nice[due], now)
            self.until[due] = 0.0
        priority, nice = jobs["priority"][rows], jobs["nice"][rows]
        waited_s = now - jobs["submit_time"][rows]
        line = Waiting(
            priority=priority + (nice - self.nice[rows]),
            gpu_s=self.gpu_s[rows],
            run_s=self.run_s[rows],
            waited_s=waited_s,
            capacity=self.capacity[pool],
        )
        known = np.isfinite(line.gpu_s)
        if not known.all():
            line = line.where(known)
            rows, priority, nice, waited_s = rows[known], priority[known], nice[known], waited_s[known]
        if len(rows) < 2:
            return bool(len(due))
        chosen = lifts(
            self.objective.keys(line),
            priority,
            self.until[rows] > 0.0,
            waited_s >= self.min_age_s,
            places=self.places,
            scale=self.objective.scale,
        )
        lifted = rows[chosen.row]
        if len(lifted):
            self._write(state, lifted, nice[chosen.row] + priority[chosen.row] - chosen.priority, now)
            self.until[lifted] = now + self.lease_s
        return bool(len(due) + len(lifted))

    def _write(self, state: State, rows: Rows, nice: Floats | NDArray[np.int32], now: float) -> None:
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


def by_limits(problem: Problem) -> Floats:
    """Return the run times that are expected without forecasts: a share of the time limits."""
    limit_s = problem.state.jobs["limit_s"]
    return np.where(np.isfinite(limit_s), limit_s * problem.options.planning.used_limit_ratio_low, np.inf)


def by_run_times(problem: Problem) -> Floats:
    """Return the true run times, as far as the time limits let jobs run."""
    return np.minimum(problem.state.jobs["work_s"], problem.state.jobs["limit_s"])


BY_LIMITS = LiftedSlurm(
    name="lift",
    summary="Slurm with this advisor's lifts alone, run times a share of the time limits",
    run_s=by_limits,
)
BY_RUN_TIMES = LiftedSlurm(
    name="lift-oracle",
    summary="Slurm with this advisor's lifts alone, run times the truth",
    run_s=by_run_times,
)
