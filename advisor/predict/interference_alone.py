"""Turns what jobs show without a neighbour into columns that forecast pairs of models that were never measured."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from advisor.predict.interference_items import PROFILE, SETTINGS, Floats, Items, JobPairs

FEATURES = (*PROFILE, *SETTINGS)
MOST_FEATURES = 3
ALONE_COLUMNS = tuple(f"alone_{number:02d}" for number in range((MOST_FEATURES + 1) ** 2))


class Feature(BaseModel):
    """A number that a job shows alone, one of `FEATURES`, with its mean and spread over the measured jobs."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    name: str = Field(pattern=f"^({'|'.join(FEATURES)})$")
    mean: float
    spread: float = Field(gt=0)


def feature_values(items: Items, name: str) -> Floats:
    """Return a feature of jobs `(n_items,)`, NaN where not known."""
    values: Floats = np.concatenate([items.profile, items.settings], axis=1)[:, FEATURES.index(name)]
    return values


def alone_columns(pairs: JobPairs, features: Sequence[Feature]) -> NDArray[np.float32]:
    """Return the columns of pairs, `(n_rows, n_alone_columns)`: products of a feature of each side, or of one and 1.

    An unknown feature counts as its mean, and columns of features that are not there are 0.
    """
    values = np.zeros((len(pairs.items), MOST_FEATURES + 1))
    values[:, 0] = 1.0
    for place, feature in enumerate(features, start=1):
        scaled = (feature_values(pairs.items, feature.name) - feature.mean) / feature.spread
        values[:, place] = np.nan_to_num(scaled)
    products = values[pairs.mine][:, :, None] * values[pairs.other][:, None, :]
    return products.reshape(len(pairs), len(ALONE_COLUMNS)).astype(np.float32)
