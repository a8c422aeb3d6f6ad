"""Tabulates the interference model: what each pair of models adds to each other on a shared node."""

from collections.abc import Sequence

import numpy as np

from advisor.errors import ModelError
from advisor.features.observe.graph import Neighbours
from advisor.features.observe.known_models import NO_MODELS, KnownModels
from advisor.predict.interference import KIND, InterferenceForecaster, NeighbourTable
from advisor.predict.interference_items import Shared
from advisor.predict.intervals import Intervals
from advisor.predict.library import Library


def neighbours_of(forecaster: InterferenceForecaster, names: Sequence[str]) -> Neighbours:
    """Return the table of some models, by name, with a row and a column for a model without a name at its end.

    Pairs that were never measured count with the pessimistic end of their interval.
    """
    inflation = pair_inflations(forecaster, names)
    expected = np.where(inflation.known, inflation.median, inflation.high)
    return Neighbours.of((expected - 1.0).reshape(len(names) + 1, len(names) + 1))


def pair_inflations(forecaster: InterferenceForecaster, names: Sequence[str]) -> Intervals:
    """Return the inflation of each model beside each one on a shared node, the other one varying first.

    A model without a name follows the last. Only the names are known of a neighbour, as on a live site.
    """
    codes = np.append(forecaster.codes(names), -1)
    mine, other = (axis.ravel() for axis in np.meshgrid(codes, codes, indexing="ij"))
    several = np.full(len(mine), 2.0)
    return forecaster.inflations(
        NeighbourTable(
            mine=mine,
            gpus=np.full(len(mine), np.nan),
            nodes=several,
            batch=np.full(len(mine), np.nan),
            other=other[:, None],
            other_gpus=np.full((len(mine), 1), np.nan),
            other_nodes=several[:, None],
            shared=np.full(len(mine), int(Shared.NODE), np.intp),
        )
    )


def models_known_to(forecaster: InterferenceForecaster) -> KnownModels:
    """Return all models that an interference model knows, with its table."""
    return KnownModels(codes=forecaster.codes, neighbours=neighbours_of(forecaster, forecaster.models))


def known_models(library: Library) -> KnownModels:
    """Return the models that the interference model in use knows, with its table; none where it cannot be used."""
    try:
        return models_known_to(InterferenceForecaster.from_bundle(library.load(KIND)))
    except ModelError:
        return NO_MODELS
