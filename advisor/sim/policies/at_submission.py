"""Gives interactive jobs of a simulation their nice as they are submitted, as `slurm/sadvise_lift.lua` does."""

import math
from collections import deque

import numpy as np

from advisor.planning.interactive import interactive_nice
from advisor.sim.policies.mover import Mover, Rows
from advisor.sim.policies.slurm import Run
from advisor.sim.queueing import PAUSED
from advisor.sim.simulated_policy import Problem
from advisor.sim.state import ENDED, State


class AtSubmission:
    """Stops a loop before each interactive job is submitted, and lifts the job if it fits in what is left."""

    def __init__(self, problem: Problem, mover: Mover) -> None:
        """Set up the tables of a run."""
        limits, jobs = problem.options.limits, problem.state.jobs
        nice = interactive_nice(limits)
        fits = (jobs["gpus"] > 0) & ((jobs["gpus"] == 1) | (jobs["nodes_max"] == 1)) & (mover.nice == 0)
        fits &= (problem.trace.jobs["interactive"] == 1) & (jobs["limit_s"] <= limits.interactive_limit_s)
        self.mover = mover
        self.nice = 0 if nice is None else nice
        self.gpus = np.floor(mover.capacity * limits.interactive_ratio)
        self.to_come: deque[int] = deque(np.flatnonzero(fits & (nice is not None)).tolist())
        self.lifted: Rows = np.empty(0, np.intp)

    def run(self, loop: Run, state: State, until: float) -> int:
        """Run a loop up to an instant."""
        while self.to_come and (time := float(state.jobs["submit_time"][self.to_come[0]])) <= until:
            before = math.nextafter(time, -math.inf)
            stopped = loop(state, before)
            if stopped != PAUSED:
                return stopped
            self._lift(state, self.to_come.popleft(), time)
        return loop(state, until)

    def _lift(self, state: State, row: int, now: float) -> None:
        mover, jobs = self.mover, state.jobs
        self.lifted = self.lifted[jobs["phase"][self.lifted] != ENDED]
        lifted = self.lifted[mover.pool[self.lifted] == mover.pool[row]]
        of_user = lifted[jobs["user"][lifted] == jobs["user"][row]]
        most, asked = self.gpus[mover.pool[row]], mover.taken[row]
        if mover.taken[lifted].sum() + asked <= most and mover.taken[of_user].sum() + asked <= math.ceil(most / 2):
            jobs["nice"][row] = self.nice
            mover.until[row] = now + mover.planning.lift_lease_s
            self.lifted = np.append(self.lifted, row)
            state.tally["changes"] += 1
