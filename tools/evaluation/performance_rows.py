"""Measured rows as samples of the performance model, priors from measured rows, and the model as it is served."""

from typing import Final

import numpy as np

from advisor.fit.interference_files import RelativeSpeeds
from advisor.fit.performance_fit import Adapted, SitePrior, Samples, Spreads
from advisor.fit.performance_graph import performance_exported
from advisor.predict.interference import InterferenceForecaster
from advisor.predict.interference_items import Floats, Rows
from advisor.predict.intervals import Intervals
from advisor.predict.neighbours import pair_inflations
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.performance import KIND, MOST_OTHERS, Parameters, PerformanceModel
from tools.measured_prior import with_means

# The standard deviation of the logarithm of a speed measured twice.
NOISE: Final = 0.02
# The quantile of a normal error at which an interval holds 80 %.
DEVIATIONS_OF_80: Final = 1.2816
# Speeds below count as this one, as they do for the interference forecast.
LEAST_SPEED: Final = 0.05
# The speed alone of each row was measured, so that neither it nor a forecast of the run time is to be learnt.
_MEASURED_ALONE: Final = 0.01
SPREADS: Final = Spreads(type_effect=_MEASURED_ALONE, speed=_MEASURED_ALONE, family=_MEASURED_ALONE)


def models_in(table: RelativeSpeeds) -> tuple[str, ...]:
    """Return the models of the rows of a table, on either side, in order of their names."""
    used = np.union1d(table.pairs.mine, table.pairs.other)
    return tuple(sorted({table.pairs.items.model[row] for row in used.tolist()}))


def codes_of(table: RelativeSpeeds, models: tuple[str, ...]) -> tuple[Rows, Rows]:
    """Return the codes of the slowed model and of the other by row; a model that is not known has the last code."""
    number = {model: code for code, model in enumerate(models)}
    codes = np.array([number.get(model, len(models)) for model in table.pairs.items.model], np.intp)
    return codes[table.pairs.mine], codes[table.pairs.other]


def samples_of(table: RelativeSpeeds, models: tuple[str, ...]) -> Samples:
    """Return one sample for each measured row: a job beside one neighbour, on a GPU type and a place of no effect.

    The GPUs and the nodes of both sides, which the rows state, are no part of the model.
    """
    mine, other = codes_of(table, models)
    count = len(table)
    others = np.zeros((count, len(models) + 1))
    others[np.arange(count), other] = 1.0
    return Samples(
        model=mine,
        gpu_type=np.zeros(count, np.intp),
        place=np.zeros(count),
        others=others,
        log_speed=np.log(np.maximum(table.speed, LEAST_SPEED)),
        noise=np.full(count, NOISE),
        family=np.full(count, -1, np.intp),
    )


def prior_of(models: tuple[str, ...], added: Floats) -> SitePrior:
    """Return a prior in which each pair of models adds an inflation, `(n_models, n_models)`, all else being known."""
    return SitePrior(
        models=models,
        gpu_types=(),
        log_speed=np.zeros((len(models) + 1, 1)),
        added=with_means(added),
        spreads=SPREADS,
    )


def flat_prior(table: RelativeSpeeds, models: tuple[str, ...]) -> SitePrior:
    """Return a prior in which every model adds to every other the mean of some rows."""
    mean = float((1.0 / np.maximum(table.speed, LEAST_SPEED) - 1.0).mean())
    return prior_of(models, np.full((len(models), len(models)), mean))


def pairs_prior(forecaster: InterferenceForecaster, models: tuple[str, ...]) -> SitePrior:
    """Return the prior from an interference forecast by name, as the shipped prior is built.

    A pair that it does not know has the mean of those that it knows.
    """
    inflation = pair_inflations(forecaster, models)
    shape = (len(models) + 1, len(models) + 1)
    known = inflation.known.reshape(shape)[:-1, :-1]
    added = inflation.median.reshape(shape)[:-1, :-1] - 1.0
    return prior_of(models, np.where(known, added, added[known].mean() if known.any() else 0.0))


def named_speeds(forecaster: InterferenceForecaster, table: RelativeSpeeds, models: tuple[str, ...]) -> Intervals:
    """Return the interference forecast of each row from the names of both models alone."""
    inflation = pair_inflations(forecaster, models)
    mine, other = codes_of(table, models)
    pair = mine * (len(models) + 1) + other
    return Intervals(
        low=1.0 / inflation.high[pair],
        median=1.0 / inflation.median[pair],
        high=1.0 / inflation.low[pair],
        known=inflation.known[pair],
    )


def served(model: Adapted, *, seed: int) -> PerformanceModel:
    """Return a performance model as it is served: its graph, opened."""
    exported = performance_exported(model, seed=seed)
    parameters = Parameters.model_validate_json(exported.parameters)
    return PerformanceModel(TensorGraph(exported.graph, name=KIND), parameters)


def speeds_of(model: PerformanceModel, table: RelativeSpeeds) -> Intervals:
    """Return the relative speeds that a performance model forecasts for measured rows, with 80 % intervals."""
    models = model.parameters.models
    mine, other = codes_of(table, models)
    no_neighbour = len(models) + 1
    others = np.full((len(table), MOST_OTHERS), no_neighbour, np.intp)
    others[:, 0] = other
    means, variances = model.log_speeds(mine, np.zeros(len(table), np.intp), np.zeros(len(table)), others)
    middle = means.mean(axis=1)
    # What each member is unsure of, and the disagreement between them, as where the model is tabulated.
    half = DEVIATIONS_OF_80 * np.sqrt(variances.mean(axis=1) + means.var(axis=1))
    known = (mine < len(models)) & (other < len(models))
    return Intervals(low=np.exp(middle - half), median=np.exp(middle), high=np.exp(middle + half), known=known)
