"""Forecast with the shipped models on a simulated cluster, from the history that accounting would hold by then."""

from functools import cache
from pathlib import Path

import numpy as np

from advisor.domain.forecast import Forecasts
from advisor.domain.snapshot import Snapshot
from advisor.predict.forecaster import ModelForecaster
from advisor.predict.library import Library
from advisor.predict.onnx_model import Bundle
from advisor.predict.run_time import EndedJobs
from advisor.sim.run_outcome import End
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.state import ENDED

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

    def since_last(self) -> EndedJobs:
        """Return the jobs whose last stretch on GPUs ended since the last call, in the order of their ends."""
        state = self._cluster.state
        count = int(state.tally["segments"][0])
        fresh = state.segments[self._seen : count]
        self._seen = count
        rows = fresh["job"]
        over = (state.jobs["phase"][rows] == ENDED) & (state.jobs["end_time"][rows] == fresh["end_time"])
        fresh, rows = fresh[over], rows[over]
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
        self._models.add_ended(self._ended.since_last())
        return self._models.forecasts(snapshot)
