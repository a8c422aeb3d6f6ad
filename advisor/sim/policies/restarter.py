"""Restarts running elastic jobs with more GPUs on the arrays of a simulation, as the planner does on snapshots.

The new size is set at the stop, which on a cluster the next round does while Slurm holds the job. A job that has not
started so by the cycle that follows `GROWTH_LEASE_S` gets its former size back.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from advisor.features.queue import ANY_TYPE
from advisor.features.steps import WINDOW, Choose, Scaling, Supply, elastic_jobs
from advisor.planning.preemption import lost_work_s
from advisor.planning.restarts import GROWTH_LEASE_S, Restart, restarts
from advisor.settings import QUANTUM_S
from advisor.sim.policies.learned_run_times import LearnedRunTimes
from advisor.sim.policies.mover import Rows, RunTimes
from advisor.sim.policies.sizer import Sizer
from advisor.sim.policies.state_board import columns_by_code
from advisor.sim.simulated_policy import Problem
from advisor.sim.slurm.slurmctld import ask_for_pass, requeue
from advisor.sim.state import NONE, PENDING, State

Floats = NDArray[np.float64]
# From the rows of running jobs to what is left of their run times, in seconds; 0 where it is not known.
Remaining = Callable[[State, Rows, float], Floats]


@dataclass(slots=True, kw_only=True)
class Restarter:
    """Stops one job of a pool at a time for more GPUs, and each job once.

    `may_stop` `(n_jobs,)` marks the jobs that are no part of an array and in no reservation.
    """

    sizer: Sizer
    remaining: Remaining
    choose: Choose
    may_stop: NDArray[np.bool_]
    _stopped: set[int] = field(default_factory=set)
    # The jobs that have not started again: their former sizes, and when they were stopped.
    _waiting: dict[int, tuple[int, float]] = field(default_factory=dict)

    def cycle(self, state: State, now: float) -> None:
        """Give jobs that wait their former sizes back, and stop the next job of each pool."""
        self._restore(state, now)
        self.sizer.cluster.state = state
        slurm = self.sizer.mover.slurm
        if state.tally["waiting"][0] or (slurm.release_time < np.inf).any():
            return
        pending, busy = self.sizer.startable(state, self.sizer.mover.rows(state)), self._waiting.keys()
        pools_busy = {int(self.sizer.mover.pool[row]) for row in busy}
        for pool, rows in self._candidates(state, now):
            if pool not in pools_busy:
                self._stop_one(state, pending, pool, rows, now)

    def _restore(self, state: State, now: float) -> None:
        """Forget the jobs that have started again, and give those that wait for too long their former sizes back."""
        for row, (gpus, stopped_time) in list(self._waiting.items()):
            job = state.jobs[row]
            if job["phase"] != PENDING:
                del self._waiting[row]
            elif now - stopped_time >= GROWTH_LEASE_S and job["gpus"] != gpus:
                job["gpus"], job["shape"] = gpus, NONE
                state.tally["changes"] += 1
                ask_for_pass(self.sizer.mover.slurm, now)

    def _candidates(self, state: State, now: float) -> Iterator[tuple[int, Rows]]:
        """Yield the running jobs that can be stopped, pool by pool."""
        jobs = state.jobs
        rows = np.sort(state.running[: int(state.tally["running"][0])]).astype(np.intp)
        rows = rows[
            self.may_stop[rows]
            & (jobs["gpus"][rows] < jobs["gpus_max"][rows])
            & (jobs["checkpoint_s"][rows] > 0.0)
            & (now - jobs["since_time"][rows] >= QUANTUM_S)
        ]
        rows = rows[[row not in self._stopped for row in rows.tolist()]]
        for pool in np.unique(self.sizer.mover.pool[rows]).tolist():
            yield pool, rows[self.sizer.mover.pool[rows] == pool]

    def _stop_one(self, state: State, pending: Rows, pool: int, rows: Rows, now: float) -> None:
        """Stop the job of a pool that gains most by a size that fits."""
        of_jobs = columns_by_code(self.sizer.cluster.gpu_types)[1]
        types = of_jobs[state.jobs["gpu_type"][rows]]
        found: list[tuple[float, int, Restart]] = []
        for gpu_type in np.unique(types).tolist():
            _, supply = self.sizer.supply(state, pending, pool, gpu_type)
            if supply.idle <= supply.wanted:
                continue
            of_type = rows[types == gpu_type]
            for first in range(0, len(of_type), WINDOW):
                found += self._restarts(state, supply, of_type[first : first + WINDOW], now)
        for _, row, restart in sorted(found, key=lambda one: (-one[0], one[1], one[2].gpus)):
            if self._fits(state, pool, row, restart.gpus):
                self._stop(state, row, restart.gpus, now)
                return

    def _restarts(self, state: State, supply: Supply, rows: Rows, now: float) -> Iterator[tuple[float, int, Restart]]:
        """Yield the restarts of a window that pay, with their gains and rows."""
        jobs, node_gpus = state.jobs, int(supply.node_gpus)
        left_s = self.remaining(state, rows, now)
        tables = [self._scaling(state, row, node_gpus) for row in rows.tolist()]
        usable = [place for place, table in enumerate(tables) if table is not None and left_s[place] > 0.0]
        if not usable:
            return
        rows, left_s = rows[usable], left_s[usable]
        lost_s = [
            lost_work_s(now - float(jobs["since_time"][row]), float(jobs["checkpoint_s"][row])) for row in rows.tolist()
        ]
        window = elastic_jobs(
            [table for place in usable if (table := tables[place]) is not None],
            asked=jobs["gpus"][rows].astype(np.float64),
            run_s=left_s,
            run_is_forecast=np.ones(len(rows), np.bool_),
            limit_s=jobs["limit_s"][rows],
            wait_s=np.zeros(len(rows)),
            limit_ratio=1.0,
        )
        settings = self.sizer.settings
        for restart in restarts(window, supply, self.choose, lost_s=np.array(lost_s), settings=settings):
            yield restart.gain_s, int(rows[restart.place]), restart

    def _scaling(self, state: State, row: int, node_gpus: int) -> Scaling | None:
        """Return the sizes of a job, with its speeds over that at the size that it holds."""
        table = self.sizer.scaling(row, node_gpus)
        if table is None:
            return None
        held = min(int((table.sizes < state.jobs["gpus"][row]).sum()), len(table.sizes) - 1)
        return replace(table, speed=table.speed / table.speed[held])

    def _fits(self, state: State, pool: int, row: int, gpus: int) -> bool:
        """Return whether a job fits on the fewest nodes at a size, on idle GPUs and those that it holds."""
        job, nodes = state.jobs[row], state.nodes
        code = columns_by_code(self.sizer.cluster.gpu_types)[1][job["gpu_type"]]
        of_nodes = columns_by_code(self.sizer.cluster.gpu_types)[0][nodes["gpu_type"]]
        served = (nodes["is_up"] == 1) & (self.sizer.pool_nodes[pool] == 1) & ((code == ANY_TYPE) | (of_nodes == code))
        free = np.where(served, nodes["gpus_free"], 0)
        held = slice(int(job["pool"]), int(job["pool"] + job["span"]))
        free[state.held_nodes[held]] += state.held_gpus[held]
        node_gpus = int(nodes["gpus"][served].max(initial=1))
        whole, rest = divmod(gpus, node_gpus)
        most = np.sort(free)[::-1]
        full = int((most >= node_gpus).sum())
        return full >= whole and (rest == 0 or (len(most) > whole and int(most[whole]) >= rest))

    def _stop(self, state: State, row: int, gpus: int, now: float) -> None:
        """Requeue a job, and let it ask for more GPUs."""
        slurm, job = self.sizer.mover.slurm, state.jobs[row]
        self._stopped.add(row)
        self._waiting[row] = int(job["gpus"]), now
        requeue(state, slurm, row, now)
        job["gpus"], job["shape"] = gpus, NONE
        job["resizes"] += 1
        state.tally["changes"] += 2
        ask_for_pass(slurm, now)


def by_finish(_run_times: RunTimes) -> Remaining:
    """Return the true time that is left to running jobs; 0 for those that their limits end."""

    def remaining(state: State, rows: Rows, now: float) -> Floats:
        jobs = state.jobs[rows]
        ends = jobs["finish_time"] <= jobs["since_time"] + jobs["limit_s"]
        return np.where(ends, jobs["finish_time"] - now, 0.0)

    return remaining


def by_forecast(run_times: RunTimes) -> Remaining:
    """Return what forecast run times leave to running jobs; 0 where none is forecast."""

    def remaining(state: State, rows: Rows, now: float) -> Floats:
        run_s = run_times.expected_s(state, rows, now)
        left_s = np.maximum(0.0, run_s - (now - state.jobs["since_time"][rows]))
        return np.where(run_times.is_known[rows], left_s, 0.0) if isinstance(run_times, LearnedRunTimes) else left_s

    return remaining


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """How running jobs are restarted: what is known of the time that is left to them, and how steps are chosen."""

    remaining: Callable[[RunTimes], Remaining]
    choose: Callable[[], Choose]

    def restarter(self, problem: Problem, sizer: Sizer) -> Restarter:
        """Return what restarts the running jobs of a run."""
        asked = problem.trace.jobs
        return Restarter(
            sizer=sizer,
            remaining=self.remaining(sizer.mover.run_times),
            choose=self.choose(),
            may_stop=(asked["array_id"] == 0)
            & np.array([not problem.trace.reservations[code] for code in asked["reservation"]]),
        )
