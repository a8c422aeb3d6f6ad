"""Forecast with the shipped models on a simulated cluster, from the history that accounting would hold by then."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.domain.forecast import Forecasts
from advisor.domain.snapshot import Snapshot
from advisor.predict.forecaster import ModelForecaster
from advisor.predict.history import ACCOUNT, REQUEST, USER, History, keys_of
from advisor.predict.library import Library
from advisor.predict.onnx_model import Bundle
from advisor.predict.run_time import EndedJobs, RunTimeForecaster
from advisor.predict.run_time_curve import LEVELS_READ
from advisor.predict.run_time_features import COLUMNS, LONGEST_S, NEAR, RUNS_KEPT, features
from advisor.sim.engine.tables import (
    FORECAST_JOB_DTYPE,
    KEPT_RUN_DTYPE,
    RUN_TIME_SETTINGS_DTYPE,
    RUNS_OF_KEY_DTYPE,
    Integers,
    RunTimeForecasts,
    Shares,
)
from advisor.sim.policies.engine_calls import answer_run_times, ask_run_times, sum_up_runs
from advisor.sim.run_outcome import End
from advisor.sim.simulated_policy import Problem, SimulationOptions
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.state import ENDED, NONE, State

# A folder of models that no site has, so that the shipped ones are used.
NOWHERE = Path("/nonexistent")
Floats = NDArray[np.float64]
# Jobs of a simulation have no names, and so no other keys.
_KEYS = {"request": REQUEST, "user": USER, "account": ACCOUNT}
_AT_ONCE = 4096
_CONSTANTS = ("gpus", "cpus", "cpus_per_gpu", "memory_per_cpu", "nodes")
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
    """The mean run times of jobs, as they were asked for; a share of the limit where the model does not know.

    As in the daemon a job is forecast again when its wait reaches another step, and when jobs ended that its forecast
    rests on. What is remembered, the rows of the model and the means are those of `RunTimeForecaster`, computed by
    `engine/run_times.c`, but no key is ever forgotten.
    """

    def __init__(self, problem: Problem, slurm: Slurm, forecaster: RunTimeForecaster | None = None) -> None:
        """Follow a simulation from its start, by default with the model that the options name."""
        if forecaster is None:
            forecaster = RunTimeForecaster.from_bundle(opened("run_time", problem.options.models))
        cluster = SimulatedSlurm(problem.trace, problem.cluster, problem.state, slurm)
        self._model = forecaster.model
        self.tables = _tables(forecaster, cluster, problem.options)
        sum_up_runs(self.tables)

    @property
    def run_s(self) -> Floats:
        """The run times by the last update, `(n_jobs,)`; infinity before."""
        return self.tables.run_s

    def update(self, state: State, rows: NDArray[np.intp], now: float) -> None:
        """Learn from the jobs that ended, and forecast pending jobs."""
        if ask_run_times(state, self.tables, Integers(rows.astype(np.int32)), now):
            self.answer(state)

    def answer(self, state: State) -> None:
        """Run the model on the rows of the jobs that are asked for."""
        rows = int(self.tables.settings["rows"][0])
        answer_run_times(state, self.tables, Shares(self._model.run(self.tables.features[:rows])))


def _parts(count: int) -> Iterator[NDArray[np.intp]]:
    """Yield the numbers below `count`, some at a time: what is looked up for a job takes kilobytes."""
    for first in range(0, count, _AT_ONCE):
        yield np.arange(first, min(first + _AT_ONCE, count))


def _tables(forecaster: RunTimeForecaster, cluster: SimulatedSlurm, options: SimulationOptions) -> RunTimeForecasts:
    """Return the tables of a run before its first job."""
    count = len(cluster.state.jobs)
    table = cluster.run_time_table(np.arange(count))
    table = replace(table, submit_time=table.submit_time + options.begins_at)
    keys_by_job = keys_of(table)
    number_of: dict[str, int] = {}
    jobs = np.zeros(count, FORECAST_JOB_DTYPE)
    for name, kind in _KEYS.items():
        of_kind = [of_job[kind] for of_job in keys_by_job]
        jobs[name] = [NONE if key is None else number_of.setdefault(key, len(number_of)) for key in of_kind]
    limit_s = forecaster.cap_s(table)
    for rows in _parts(count):
        # What does not change while the trace runs, taken from the rows of jobs of which nothing is remembered.
        nothing = History().recall([keys_by_job[row] for row in rows.tolist()])
        columns = features(table.take(rows), nothing, limit_s[rows]).rows
        for name in _CONSTANTS:
            jobs[name][rows] = columns[:, COLUMNS.index(name)]
    jobs["submit_time"], jobs["log_limit"], jobs["waited_s"] = table.submit_time, np.log(limit_s), -1.0
    jobs["is_supported"] = forecaster.support.holds(table)
    keys = np.zeros(len(number_of), RUNS_OF_KEY_DTYPE)
    runs = np.zeros((len(number_of), RUNS_KEPT), KEPT_RUN_DTYPE)
    names = list(number_of)
    for rows in _parts(len(names) if len(forecaster.history) else 0):
        # A key is looked up as that of a request, whatever it is of.
        found = forecaster.history.recall([(None, names[row], None, None, None) for row in rows.tolist()])
        for place, name in enumerate(("run_s", "limit_s", "end_time")):
            runs[name][rows] = found.runs[:, NEAR, :, place]
        keys["count"][rows], keys["written"][rows] = found.counts[:, NEAR], found.counts[:, NEAR] > 0
        keys["kept"][rows] = (~np.isnan(found.runs[:, NEAR, :, 0])).sum(axis=1)
    settings = np.zeros(1, RUN_TIME_SETTINGS_DTYPE)
    settings["begins_at"], settings["limit_ratio"] = options.begins_at, options.planning.used_limit_ratio_low
    settings["longest_s"], settings["version"] = LONGEST_S, 1
    return RunTimeForecasts(
        settings=settings,
        jobs=jobs,
        keys=keys,
        runs=runs.ravel(),
        run_s=np.full(count, np.inf),
        asked=np.zeros(count, np.int32),
        answer=np.zeros(count, np.int32),
        features=np.zeros((count, len(COLUMNS)), np.float32),
        places=np.zeros(1 << (2 * count).bit_length(), np.int32),
        over_anchor=forecaster.grid.over_anchor,
        over_limit=forecaster.grid.over_limit,
        levels=forecaster.levels.stated(np.zeros(1, np.int64), LEVELS_READ[None, :])[0],
    )
