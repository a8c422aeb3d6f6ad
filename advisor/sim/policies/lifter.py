"""Lifts on the arrays of a simulation, chosen as on snapshots."""

from collections import deque

import numpy as np

from advisor.planning.lifts import Bounds, Stakes, lifts
from advisor.planning.objective import Floats, Objective, Waiting, fair_range, is_weighed
from advisor.sim.policies.mover import Mover, PlainWaits, Rows, RunTimes
from advisor.sim.simulated_policy import Problem
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.state import State


class Lifter(Mover):
    """Lifts pending jobs; arrays are `(n_jobs,)`.

    `spent` are the lifts of a lane: when which jobs were lifted, and their GPU-time.
    """

    def __init__(self, problem: Problem, slurm: Slurm, run_times: RunTimes) -> None:
        """Set up the tables of a run."""
        super().__init__(problem, slurm, run_times)
        control, weighs = slurm.control[0], is_weighed(self.limits)
        self.objective = Objective(
            decades=self.planning.priority_decades,
            scale=fair_range((control["weight_fairshare"], control["weight_age"])),
            patience_s=self.planning.patience_s,
            max_credit=self.planning.max_credit,
            is_weighed=weighs,
        )
        self.plain_waits = PlainWaits.of(problem) if weighs else None
        self.spent: deque[tuple[float, Rows, Floats]] = deque()

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
        is_overdue = np.zeros(len(rows), np.bool_) if plain is None else plain.is_overdue(rows, now)
        taken, limit_s = self.taken[rows], jobs["limit_s"][rows]
        line = Waiting(
            priority=priority + (nice - self.nice[rows]),
            gpu_s=run_s * taken,
            tasks=np.ones(len(rows)),
            run_s=run_s,
            waited_s=now - self.slurm.eligible_time[rows],
            owed=np.zeros(len(rows)) if plain is None else plain.owed(state, rows, now),
            is_overdue=is_overdue,
            capacity=capacity,
        )
        is_lane = self.limits.is_lane
        stakes = Stakes(
            gpu_s=line.gpu_s if is_lane else taken * np.where(np.isfinite(limit_s), limit_s, run_s),
            tasks=line.tasks,
            user=jobs["user"][rows].astype(np.intp),
            spent=self._spent(state, rows, now) if is_lane else None,
        )
        chosen = lifts(
            self.objective.keys(line),
            priority,
            self.until[rows] > 0.0,
            age_s >= self.limits.min_job_age_s,
            stakes,
            bounds=Bounds.of(self.planning, self.limits, capacity),
            scale=self.objective.scale,
        )
        lifted = rows[chosen.row]
        if len(lifted):
            self._write(state, lifted, nice[chosen.row] + priority[chosen.row] - chosen.priority, now)
            self.until[lifted] = now + self.planning.lift_lease_s
            if is_lane:
                self.spent.append((now, lifted, stakes.gpu_s[chosen.row]))
        return bool(len(due) + len(lifted))

    def _spent(self, state: State, rows: Rows, now: float) -> Floats:
        """Return the GPU-time of each user that was lifted in the pool of some rows within the window, `(n_users,)`."""
        while self.spent and self.spent[0][0] <= now - self.limits.fairness_window_s:
            self.spent.popleft()
        spent = np.zeros(int(state.jobs["user"].max(initial=0)) + 1)
        for _, lifted, gpu_s in self.spent:
            # All of one change are of one pool.
            if self.pool[lifted[0]] == self.pool[rows[0]]:
                np.add.at(spent, state.jobs["user"][lifted], gpu_s)
        return spent
