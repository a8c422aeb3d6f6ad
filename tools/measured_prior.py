"""Builds the prior of the performance model from what was measured: the shipped profiles and interference model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from advisor.fit.performance_fit import Floats, Rows, SitePrior
from advisor.predict.interference import KIND, InterferenceForecaster, pair_inflations
from advisor.predict.library import Library
from advisor.sim.profiles import NEUTRAL, Profiles, load_profiles

# Only models that ship, whatever a site has.
_NO_SITE: Final = Path("/nonexistent")


def measured_prior(types: Sequence[str] | None = None) -> SitePrior:
    """Return the prior of the shipped models for some GPU types, by default those of the profiles.

    A GPU type without a measured speed counts as an average one. A model that is not known by name, in the last row and
    column, is the mean of all others; its speeds are those of a mean in logarithms.
    """
    profiles = load_profiles()
    models = tuple(name for name in profiles.names if name != NEUTRAL and "/" not in name)
    gpu_types = tuple(name.lower() for name in (profiles.gpu_types if types is None else types))
    rows = np.array([profiles.names.index(name) for name in models])
    forecaster = InterferenceForecaster.from_bundle(Library(_NO_SITE).load(KIND))
    pairs = pair_inflations(forecaster, models)
    known, median = (column.reshape(len(rows) + 1, -1)[:-1, :-1] for column in (pairs.known, pairs.median))
    speed = relative_log_speed(profiles, rows, gpu_types)
    return SitePrior(
        models=models,
        gpu_types=gpu_types,
        log_speed=np.vstack([speed, speed.mean(axis=0)]),
        added=_with_means(np.where(known, median - 1.0, _profiled_added(profiles, rows))),
    )


def _profiled_added(profiles: Profiles, rows: Rows) -> Floats:
    """Return the inflation that each model adds to each, `(n, n)`, by the profiles in some rows."""
    sensitivity, pressure = profiles.rows["node_sensitivity"][rows], profiles.rows["node_pressure"][rows]
    return np.asarray(sensitivity[:, None] * pressure[None, :])


def relative_log_speed(profiles: Profiles, rows: Rows, gpu_types: Sequence[str]) -> Floats:
    """Return the logarithms of speeds `(n, n_types + 1)` over their mean on the types that were measured.

    The last column is for a type that is not known by name, 0 as for any type that was not measured.
    """
    column = {name.lower(): number for number, name in enumerate(profiles.gpu_types)}
    measured = np.array([place for place, name in enumerate(gpu_types) if name in column], np.intp)
    speed = np.zeros((len(rows), len(gpu_types) + 1))
    if len(measured):
        columns = np.array([column[gpu_types[place]] for place in measured], np.intp)
        logs = np.log(profiles.type_speed[np.ix_(rows, columns)])
        speed[:, measured] = logs - logs.mean(axis=1, keepdims=True)
    return speed


def _with_means(added: Floats) -> Floats:
    """Return a table of pairs with the means over models in one more row and column."""
    rows = np.vstack([added, added.mean(axis=0)])
    return np.hstack([rows, rows.mean(axis=1, keepdims=True)])
