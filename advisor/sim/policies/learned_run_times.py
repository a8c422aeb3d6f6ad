"""Run times forecast by the model in use on the arrays of a simulation, learning from the jobs that ended."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from advisor.predict.history import Keys, keys_of
from advisor.predict.run_time import RunTimeForecaster
from advisor.predict.run_time_features import RunTimeTable, wait_reached_s
from advisor.sim.policies.learning import EndedInOrder, opened
from advisor.sim.simulated_policy import Problem
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.state import State


class LearnedRunTimes:
    """The mean run times of jobs; a share of the limit where the model does not know, which `is_known` marks.

    As in the daemon a job is forecast again when its wait reaches another step, and when jobs ended that its forecast
    rests on.
    """

    def __init__(self, problem: Problem, slurm: Slurm) -> None:
        """Follow a simulation from its start."""
        self._cluster = SimulatedSlurm(problem.trace, problem.cluster, problem.state, slurm)
        self._ended = EndedInOrder(self._cluster)
        self._model = RunTimeForecaster.from_bundle(opened("run_time", problem.options.models))
        self._begins_at = problem.options.begins_at
        self._ratio = problem.options.planning.used_limit_ratio_low
        count = len(problem.state.jobs)
        self._run_s = np.full(count, np.inf)
        self.is_known = np.zeros(count, np.bool_)
        # Of the last forecast of each job: its keys, the stamps of their history, and the step that its wait reached.
        self._keys: list[Keys | None] = [None] * count
        self._stamps = np.full((count, 2), -1, np.int64)
        self._wait_s = np.full(count, -1.0)

    def expected_s(self, state: State, rows: NDArray[np.intp], now: float) -> NDArray[np.float64]:
        """Return the run times of pending jobs."""
        self._cluster.state = state
        ended = self._ended.since_last()
        if len(ended.run_s):
            jobs, end_time = self._at_the_site(ended.jobs), ended.end_time + self._begins_at
            self._model.add_ended(replace(ended, jobs=jobs, end_time=end_time))
        waited_s = now - state.jobs["submit_time"][rows]
        is_due = self._wait_s[rows] != wait_reached_s(waited_s)
        if len(ended.run_s):
            is_due |= self._has_learnt(rows)
        if is_due.any():
            self._forecast(state, rows[is_due], waited_s[is_due])
        return np.asarray(self._run_s[rows])

    def _has_learnt(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return for which jobs another history is recalled than at their last forecast."""
        keys = [self._keys[row] for row in rows.tolist()]
        asked = np.array([of_job is not None for of_job in keys])
        stamps = self._model.history.stamps([of_job for of_job in keys if of_job is not None])
        asked[asked] = (stamps != self._stamps[rows[asked]]).any(axis=1)
        return asked

    def _forecast(self, state: State, rows: NDArray[np.intp], waited_s: NDArray[np.float64]) -> None:
        asked = self._at_the_site(replace(self._cluster.run_time_table(rows), waited_s=waited_s))
        keys = keys_of(asked)
        for row, of_job in zip(rows.tolist(), keys, strict=True):
            self._keys[row] = of_job
        recalled, self._stamps[rows] = self._model.history.recall_stamped(keys)
        forecast, limit_s = self._model.read(self._model.draw(asked, recalled)), state.jobs["limit_s"][rows]
        self._run_s[rows] = np.where(forecast.known, np.minimum(forecast.mean_s, limit_s), self._ratio * limit_s)
        self.is_known[rows] = forecast.known
        self._wait_s[rows] = wait_reached_s(waited_s)

    def _at_the_site(self, jobs: RunTimeTable) -> RunTimeTable:
        return replace(jobs, submit_time=jobs.submit_time + self._begins_at)
