"""Exchanges of places within users or accounts on the arrays of a simulation, as on snapshots."""

import numpy as np
from numpy.typing import NDArray

from advisor.planning.exchange import exchanges
from advisor.planning.objective import Floats, bound_s, scoped_keys
from advisor.sim.policies.mover import Mover, PlainWaits, Rows, RunTimes
from advisor.sim.simulated_policy import Problem
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.state import NONE, PENDING, State


class Exchanger(Mover):
    """Lets pairs of jobs of one user or account, their `group`, change places; arrays are `(n_jobs,)`.

    `partner` is the job with which a job changed places last, NONE if it did not, and `has_given` whether it has given
    its place.
    """

    def __init__(self, problem: Problem, slurm: Slurm, run_times: RunTimes) -> None:
        """Set up the tables of a run."""
        super().__init__(problem, slurm, run_times)
        count = len(problem.state.jobs)
        self.group = group_of(problem)
        self.plain_waits = PlainWaits.of(problem)
        self.partner = np.full(count, NONE, np.intp)
        self.has_given = np.zeros(count, np.bool_)

    def _cycle_of(self, state: State, rows: Rows, run_s: Floats, now: float, capacity: float) -> bool:  # noqa: ARG002  (the protocol's)
        """Put back the pairs that are due, and let others change places; return whether any job was changed."""
        jobs, limits = state.jobs, self.limits
        is_overdue = self.plain_waits.is_overdue(rows, now)
        returned = self._put_back(state, rows, is_overdue, now)
        priority, is_moved = jobs["priority"][rows], self.until[rows] > 0.0
        is_old_enough = now - jobs["submit_time"][rows] >= limits.min_job_age_s
        can_rise = is_old_enough & ~is_moved & (self.group[rows] != NONE)
        chosen = exchanges(
            scoped_keys(run_s * self.taken[rows], is_overdue),
            priority,
            self.group[rows],
            can_rise,
            can_rise & ~self.has_given[rows] & ~is_overdue,
            places=self.planning.lift_places,
        )
        up, down = rows[chosen.up], rows[chosen.down]
        if len(up):
            points = priority[chosen.down] - priority[chosen.up]
            self.partner[up], self.partner[down] = down, up
            self.until[up] = now + self.planning.lift_lease_s
            self.until[down] = now + bound_s(now - self.slurm.eligible_time[down], limits)
            self.has_given[down] = True
            self._write(state, np.r_[up, down], np.r_[jobs["nice"][up] - points, jobs["nice"][down] + points], now)
        return bool(returned or len(up))

    def _put_back(self, state: State, rows: Rows, is_overdue: NDArray[np.bool_], now: float) -> bool:
        """Put back the jobs that are due or have given their place and are overdue, with those of their pairs."""
        until = self.until[rows]
        is_lifted = (until > 0.0) & (state.jobs["nice"][rows] < self.nice[rows])
        due = rows[(until > 0.0) & ((until <= now) | (is_overdue & ~is_lifted))]
        if not len(due):
            return False
        partners = self.partner[due]
        is_out = (state.jobs["phase"][partners] == PENDING) & (self.until[partners] > 0.0)
        back = np.union1d(due, partners[is_out])
        self._write(state, back, self.nice[back], now)
        self.until[back] = 0.0
        return True


def group_of(problem: Problem) -> NDArray[np.int32]:
    """Return the user of each job, or its account, as the fairness names it, `(n_jobs,)`; NONE if it has no name."""
    jobs, trace = problem.state.jobs, problem.trace
    within_users = problem.options.limits.fairness == "user"
    group, names = (jobs["user"], trace.users) if within_users else (jobs["account"], trace.accounts)
    has_name = np.array([bool(name) for name in names], dtype=np.bool_)
    return np.where(has_name[group], group, NONE).astype(np.int32)
