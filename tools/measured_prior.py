"""Builds the prior of the performance model from what was measured: the shipped profiles and interference model."""

from pathlib import Path
from typing import Final

import numpy as np

from advisor.features.observe.graph import Floats, Rows
from advisor.predict.interference import KIND, InterferenceForecaster, pair_inflations
from advisor.predict.library import Library
from advisor.sim.profiles import NEUTRAL, Profiles, load_profiles
from tools.train.performance_fit import SitePrior

# Only models that ship, whatever a site has.
_NO_SITE: Final = Path("/nonexistent")


def measured_prior() -> SitePrior:
    """Return the prior of the shipped models for the GPU types of the profiles.

    A GPU type that is not known by name counts as an average one. A model that is not, in the last row and column, is
    the mean of all others; its speeds are those of a mean in logarithms.
    """
    profiles = load_profiles()
    models = tuple(name for name in profiles.names if name != NEUTRAL and "/" not in name)
    rows = np.array([profiles.names.index(name) for name in models])
    forecaster = InterferenceForecaster.from_bundle(Library(_NO_SITE).load(KIND))
    pairs = pair_inflations(forecaster, models)
    known, median = (column.reshape(len(rows) + 1, -1)[:-1, :-1] for column in (pairs.known, pairs.median))
    speed = _relative_log_speed(profiles, rows)
    return SitePrior(
        models=models,
        gpu_types=tuple(name.lower() for name in profiles.gpu_types),
        log_speed=np.vstack([speed, speed.mean(axis=0)]),
        added=_with_means(np.where(known, median - 1.0, _profiled_added(profiles, rows))),
    )


def _profiled_added(profiles: Profiles, rows: Rows) -> Floats:
    """Return the inflation that each model adds to each, `(n, n)`, by the profiles in some rows."""
    sensitivity, pressure = profiles.rows["node_sensitivity"][rows], profiles.rows["node_pressure"][rows]
    return np.asarray(sensitivity[:, None] * pressure[None, :])


def _relative_log_speed(profiles: Profiles, rows: Rows) -> Floats:
    """Return the logarithms of speeds over their mean `(n, n_types + 1)`; the last is for a type that is not known."""
    logs = np.log(profiles.type_speed[rows])
    return np.pad(logs - logs.mean(axis=1, keepdims=True), ((0, 0), (0, 1)))


def _with_means(added: Floats) -> Floats:
    """Return a table of pairs with the means over models in one more row and column."""
    rows = np.vstack([added, added.mean(axis=0)])
    return np.hstack([rows, rows.mean(axis=1, keepdims=True)])
