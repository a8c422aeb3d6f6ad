"""Run times forecast by the model in use on the arrays of a simulation, learning from the jobs that ended."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.predict.run_time import RunTimeForecaster
from advisor.predict.run_time_table import RunTimeTable
from advisor.sim.learning import EndedInOrder, opened
from advisor.sim.simulated_policy import Problem
from advisor.sim.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm_state import Slurm
from advisor.sim.state import State

# How often the forecast of a pending job is made again.
EVERY_S: Final = 3 * 3600.0


class LearnedRunTimes:
    """The mean run times of jobs; a share of the limit where the model does not know, which `is_known` marks."""

    def __init__(self, problem: Problem, slurm: Slurm) -> None:
        """Follow a simulation from its start."""
        self._cluster = SimulatedSlurm(problem.trace, problem.cluster, problem.state, slurm)
        self._ended = EndedInOrder(self._cluster)
        self._model = RunTimeForecaster.from_bundle(opened("run_time", problem.options.models))
        self._begins_at = problem.options.begins_at
        self._ratio = problem.options.planning.used_limit_ratio_low
        self._run_s = np.full(len(problem.state.jobs), np.inf)
        self.is_known = np.zeros(len(problem.state.jobs), np.bool_)
        self._forecast_time = np.full(len(problem.state.jobs), -np.inf)

    def expected_s(self, state: State, rows: NDArray[np.intp], now: float) -> NDArray[np.float64]:
        """Return the run times of pending jobs, forecast at first sight and every `EVERY_S`."""
        self._cluster.state = state
        ended = self._ended.since_last()
        if len(ended.run_s):
            jobs, end_time = self._at_the_site(ended.jobs), ended.end_time + self._begins_at
            self._model.add_ended(replace(ended, jobs=jobs, end_time=end_time))
        due = rows[now - self._forecast_time[rows] >= EVERY_S]
        if len(due):
            asked = self._at_the_site(self._cluster.run_time_table(due))
            forecast, limit_s = self._model.forecast(asked), state.jobs["limit_s"][due]
            self._run_s[due] = np.where(forecast.known, np.minimum(forecast.mean_s, limit_s), self._ratio * limit_s)
            self.is_known[due] = forecast.known
            self._forecast_time[due] = now
        return np.asarray(self._run_s[rows])

    def _at_the_site(self, jobs: RunTimeTable) -> RunTimeTable:
        return replace(jobs, submit_time=jobs.submit_time + self._begins_at)
