"""Fits the forecast of models that were never measured beside others, from what they show alone."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.fit.fitted import Regressor
from advisor.fit.interference_files import RelativeSpeeds
from advisor.predict.interference_items import (
    PROFILE,
    Feature,
    Floats,
    Items,
    JobPairs,
    Rows,
    alone_columns,
    feature_values,
)
from advisor.predict.interference_section import LEAST_SPEED, Section

# What such a model can be forecast by, besides the products that forecast all others.
CANDIDATES: tuple[tuple[str, ...], ...] = (
    ("step_time", "gpus", "nodes"),
    ("step_time", "saturation"),
    ("gpu_busy", "memory_busy"),
)
# The strength of the ridge; errors for models left out are the same from 0.01 to 10.
STRENGTH = 1.0
# A feature is of use where it is known of this share of the jobs.
LEAST_KNOWN_RATIO = 0.5

Refit = Callable[[RelativeSpeeds, Rows], tuple[Section, Regressor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """The features that forecast models that were never measured, and their errors on models left out.

    `errors` are those from all that models show alone, `named_errors` those if only their names and sizes are known;
    each has one entry for each row and each of its models. Both are empty if every row is of one model.
    """

    features: tuple[Feature, ...]
    errors: Floats
    named_errors: Floats


def unseen_models(relative: RelativeSpeeds, refit: Refit) -> Unseen:
    """Return the features with the least error on models left out; `refit` fits the products to other rows.

    Where no feature is known the products forecast such models too. They do not compete: their similarity was chosen by
    the same errors, which are too small for it.
    """
    candidates = [features_of(relative.pairs.items, names) for names in CANDIDATES]
    usable = [features for features in candidates if features]
    by_products, named, by_alone = [], [], [list[Floats]() for _ in usable]
    for inside, outside in _without_each_model(relative.pairs):
        few, rest = relative.take(inside).alone(), relative.take(outside)
        section, ridge = refit(few, inside)
        by_products.append(_errors(few, rest, ridge.predict(_wide(section.pair_products(rest.pairs)))))
        named.append(_errors(few, rest, ridge.predict(_wide(named_products(section, rest.pairs)))))
        for errors, features in zip(by_alone, usable, strict=True):
            errors.append(_errors(few, rest, alone_ridge(few, features).predict(_alone(rest.pairs, features))))
    tried = list(zip(usable, by_alone, strict=True)) or [((), by_products)]
    means = [float(np.mean(np.abs(np.concatenate(errors)))) if errors else 0.0 for _, errors in tried]
    features, errors = tried[int(np.argmin(means))]
    return Unseen(
        features=features,
        errors=np.concatenate([np.zeros(0), *errors]),
        named_errors=np.concatenate([np.zeros(0), *named]),
    )


def features_of(items: Items, names: Sequence[str]) -> tuple[Feature, ...]:
    """Return features with their means and spreads over jobs; none if one of a profile is known of too few of them."""
    features = []
    for name in names:
        values = feature_values(items, name)
        known = values[np.isfinite(values)]
        if len(known) < LEAST_KNOWN_RATIO * len(values) and name in PROFILE:
            return ()
        spread = float(known.std()) if len(known) else 0.0
        features.append(
            Feature(name=name, mean=float(known.mean()) if len(known) else 0.0, spread=spread if spread > 1e-9 else 1.0)
        )
    return tuple(features)


def alone_ridge(relative: RelativeSpeeds, features: Sequence[Feature]) -> Regressor:
    """Return the ridge regression of relative speeds on the columns of jobs alone."""
    from sklearn.linear_model import Ridge

    return Ridge(alpha=STRENGTH, solver="cholesky").fit(_alone(relative.pairs, features), relative.speed)


def named_products(section: Section, pairs: JobPairs) -> NDArray[np.float32]:
    """Return the products of pairs if only models and sizes are known, as for live jobs, `(n_rows, n_products)`."""
    items = pairs.items
    settings = items.settings.copy()
    settings[:, 0] = np.nan
    shares, _ = section.shares(np.array([section.code(model) for model in items.model], np.intp), settings)
    return section.named_products(shares[pairs.mine], shares[pairs.other])


def _without_each_model(pairs: JobPairs) -> Iterator[tuple[Rows, Rows]]:
    """Yield, for each model, the rows without it and those with it; not where nothing else is left."""
    models = np.array(pairs.items.model, dtype=object)
    mine, other = models[pairs.mine], models[pairs.other]
    for model in sorted({*mine.tolist(), *other.tolist()}):
        has = (mine == model) | (other == model)
        if np.count_nonzero(~has) > 1:
            yield np.flatnonzero(~has), np.flatnonzero(has)


def _errors(fitted_on: RelativeSpeeds, judged: RelativeSpeeds, predicted: Floats) -> Floats:
    errors: Floats = judged.speed - np.clip(predicted, LEAST_SPEED, fitted_on.speed.max())
    return errors


def _wide(rows: NDArray[np.float32]) -> Floats:
    return rows.astype(np.float64)


def _alone(pairs: JobPairs, features: Sequence[Feature]) -> Floats:
    return _wide(alone_columns(pairs, features))
