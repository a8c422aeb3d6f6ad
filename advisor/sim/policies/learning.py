"""Forecast with the shipped models on a simulated cluster, from the history that accounting would hold by then."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.domain.forecast import Forecasts
from advisor.domain.snapshot import Snapshot
from advisor.predict.forecaster import ModelForecaster
from advisor.predict.history import Keys, keys_of
from advisor.predict.library import Library
from advisor.predict.onnx_model import Bundle
from advisor.predict.run_time import EndedJobs, RunTimeForecaster
from advisor.predict.run_time_features import RunTimeTable, wait_reached_s
from advisor.sim.run_outcome import End
from advisor.sim.simulated_policy import Problem
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.state import ENDED, State

# A folder of models that no site has, so that the shipped ones are used.
NOWHERE = Path("/nonexistent")
# As accounting words the ends.
_STATES = {int(End.FINISHED): "COMPLETED", int(End.TIME_LIMIT): "TIMEOUT"}


@cache
def opened(kind: str, models: str = "") -> Bundle:
    """Open a model once per process: a sweep runs many simulations.

    `models` is the folder of a site's models; without it the shipped ones alone are used, so that a run is the same at
    every site.
    """
    return Library(Path(models) if models else NOWHERE).load(kind)


class _Shipped(Library):
    """The shipped models only, so that a run is the same at every site."""

    def __init__(self) -> None:
        super().__init__(NOWHERE)

    def load(self, kind: str) -> Bundle:
        """Return the checked model."""
        return opened(kind)


class EndedInOrder:
    """The jobs of a simulation that ended, as accounting would hold them."""

    def __init__(self, cluster: SimulatedSlurm) -> None:
        """Follow a cluster from its start."""
        self._cluster = cluster
        self._seen = 0

    def since_last(self) -> EndedJobs | None:
        """Return the jobs whose last stretch on GPUs ended since the last call, by their ends; None for none."""
        state = self._cluster.state
        count = int(state.tally["segments"][0])
        fresh = state.segments[self._seen : count]
        self._seen = count
        rows = fresh["job"]
        over = (state.jobs["phase"][rows] == ENDED) & (state.jobs["end_time"][rows] == fresh["end_time"])
        fresh, rows = fresh[over], rows[over]
        if not len(rows):
            return None
        return EndedJobs(
            jobs=self._cluster.run_time_table(rows),
            run_s=fresh["end_time"] - fresh["start_time"],
            end_time=fresh["end_time"].astype(np.float64),
            state=tuple(_STATES.get(end, "") for end in state.jobs["end"][rows].tolist()),
        )


class LearningForecaster:
    """A `ModelForecaster` that learns from every job that ended since its last forecast."""

    def __init__(self, cluster: SimulatedSlurm) -> None:
        """Follow a cluster from its start."""
        self._ended = EndedInOrder(cluster)
        self._models = ModelForecaster(_Shipped())

    def forecasts(self, snapshot: Snapshot) -> Forecasts:
        """Learn from the jobs that ended, then forecast."""
        if (ended := self._ended.since_last()) is not None:
            self._models.add_ended(ended)
        return self._models.forecasts(snapshot)


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
        if ended is not None:
            jobs, end_time = self._at_the_site(ended.jobs), ended.end_time + self._begins_at
            self._model.add_ended(replace(ended, jobs=jobs, end_time=end_time))
        waited_s = now - state.jobs["submit_time"][rows]
        is_due = self._wait_s[rows] != wait_reached_s(waited_s)
        if ended is not None:
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
