"""Fits the model of interference to measured pairs of jobs."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.errors import ConfigError
from advisor.fit.fitted import Fitted, Regressor, Source
from advisor.fit.interference_files import RelativeSpeeds, measured, read_files
from advisor.fit.interference_kernel import Chosen, basis, pairs_left_out, search, steadied
from advisor.fit.interference_sums import SumOfSpeeds, sums_of, without_doubtful
from advisor.fit.interference_unseen import alone_ridge, named_products, unseen_models
from advisor.predict.interference import KIND
from advisor.predict.interference_items import (
    ALONE_COLUMNS,
    PROFILE,
    Feature,
    Floats,
    Items,
    Rows,
    Shape,
    Shared,
    alone_columns,
    similarity,
)
from advisor.predict.interference_section import (
    COLUMNS,
    MOST_PRODUCTS,
    OF_ONE,
    OUTPUTS,
    InterferenceParameters,
    Likeness,
    MeasuredItem,
    Section,
    SectionParameters,
    graph_rows,
    section_of,
)

LEAST_ROWS = 20
MOST_COORDINATES = 80
# The most rows for the errors on held-out rows, which more would make slow; the quantiles need no more.
JUDGED_ROWS = 700
SMALLEST_ERROR = 0.005
PARTS = 5
LOW, HIGH = 0.1, 0.9
_TEXT = (
    "Relative speed, hence inflation, of a job beside another on the same GPUs or on the same nodes, fitted to "
    "measured pairs. Several neighbours add up, which is an interpretation: pairs are all that is measured. For an "
    "uplink the numbers of shared nodes stand in, which is an assumption. It knows the models that were measured; of "
    "others it states the population."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedSection:
    """One way of sharing: its parameters, its regressors, and its figures on held-out rows.

    The first regressors are of `products` `(n_rows, n_products)`, the last is of the columns of jobs `alone`.
    """

    parameters: SectionParameters
    regressors: tuple[Regressor, Regressor, Regressor, Regressor]
    products: NDArray[np.float32]
    alone: NDArray[np.float32]
    metrics: Mapping[str, float]
    sums: Sequence[SumOfSpeeds]


def fit_interference(files: Sequence[Path], *, seed: int) -> Fitted:
    """Fit to files of measured pairs, whose columns determine their form; raises `ConfigError`."""
    sides, sources = read_files(files)
    gpu, node = (measured(speeds, shared) if speeds else None for shared, speeds in sides.items())
    return fit_measured(gpu, node, seed=seed, sources=sources)


def fit_measured(
    gpu: RelativeSpeeds | None, node: RelativeSpeeds | None, *, seed: int, sources: tuple[Source, ...] = ()
) -> Fitted:
    """Fit to measured pairs of one or both ways of sharing; raises `ConfigError` if they are too few."""
    fitted = [
        None if speeds is None else _fit_section(speeds.alone(), np.random.default_rng(seed)) for speeds in (gpu, node)
    ]
    present = [section for section in fitted if section is not None]
    if not present:
        raise ConfigError("there are no measured pairs to fit to: give a table of them")
    width = len(ALONE_COLUMNS) + max(section.products.shape[1] for section in present)
    parameters = InterferenceParameters(
        gpu=None if fitted[0] is None else fitted[0].parameters,
        node=None if fitted[1] is None else fitted[1].parameters,
    )
    return Fitted(
        kind=KIND,
        columns=COLUMNS[:width],
        outputs=OUTPUTS,
        regressors=tuple(regressor for section in fitted for regressor in _served(section, width)),
        parameters=parameters.model_dump_json(),
        probe=np.concatenate([_probe(section, width) for section in present]),
        sources=sources,
        metrics={
            f"{name}: {figure}": value
            for name, section in zip(("shared GPU", "shared nodes"), fitted, strict=True)
            if section is not None
            for figure, value in section.metrics.items()
        },
        seed=seed,
        text=" ".join([_TEXT, *(each.sentence for section in present for each in section.sums if each.is_doubtful)]),
    )


def _probe(section: FittedSection, width: int) -> NDArray[np.float32]:
    step = max(1, len(section.products) // 200)
    return graph_rows(section.products[::step], width, section.alone[::step])


def _served(section: FittedSection | None, width: int) -> tuple[Regressor, ...]:
    """Return the regressors of a way of sharing over all columns of the graph; constants, never used, without one."""
    if section is None:
        return _constants(width)
    *of_products, of_alone = section.regressors
    return (*(_widened(each, len(ALONE_COLUMNS), width) for each in of_products), _widened(of_alone, 0, width))


def _widened(regressor: Regressor, first: int, width: int) -> Regressor:
    """Return a linear regressor over `width` columns, of which it uses its own, from `first` on."""
    wide = copy.copy(regressor)
    wide.coef_ = np.zeros(width)
    wide.coef_[first : first + len(regressor.coef_)] = regressor.coef_
    wide.n_features_in_ = width
    return wide


def _fit_section(every_type: RelativeSpeeds, generator: np.random.Generator) -> FittedSection:
    sums = sums_of(every_type) if every_type.shared is Shared.GPU else ()
    relative = without_doubtful(every_type, sums).alone()
    if len(relative) < LEAST_ROWS or len(set(relative.pair.tolist())) < 3:
        raise ConfigError(
            f"{len(relative)} measured rows are too few to fit interference to: give at least {LEAST_ROWS}"
        )
    items, mean, spread = _standardised(relative.pairs.items)
    chosen = search(replace(relative.pairs, items=items), relative.speed, relative.pair, generator)
    noise = chosen.weights.noise
    draft = _parameters(relative, items, mean, spread, chosen)
    rows = section_of(draft, KIND).pair_products(relative.pairs)
    judged = _some_pairs(relative.pair, generator)
    few = relative.take(judged)
    weight = np.ones(len(relative))
    weight[judged] = steadied(replace(few.pairs, items=items), few.speed, few.pair, chosen)
    errors = _errors_of_pairs(few, rows[judged], noise, weight[judged])
    named_rows = named_products(section_of(draft, KIND), few.pairs)
    named_errors = _named_errors(rows[judged], named_rows, few, noise, weight[judged], generator)
    spreads, factors = _spreads(rows[judged], errors, few.pair, generator)
    named, named_factors = _spreads(named_rows, named_errors, few.pair, generator)
    unseen = unseen_models(few, lambda rest, inside: _refitted(rest, chosen, weight[judged][inside]))
    known = draft.model_copy(
        update={
            "known_factors": factors,
            "named_factors": named_factors,
            "unseen_errors": _quantiles(unseen.errors if len(unseen.errors) else 2.0 * errors),
            "unseen_named_errors": _quantiles(unseen.named_errors if len(unseen.errors) else 2.0 * named_errors),
            "alone": unseen.features,
        }
    )
    return FittedSection(
        parameters=SectionParameters.model_validate(known.model_dump()),
        regressors=(
            _ridge(rows, relative.speed, noise, weight),
            spreads,
            named,
            _by_alone(relative, unseen.features),
        ),
        products=rows,
        alone=alone_columns(relative.pairs, unseen.features),
        metrics={
            "mean error of relative speed, pairs left out": float(np.mean(np.abs(errors))),
            **_errors_of_models("models left out", unseen.errors),
            **_errors_of_models("models left out, by name alone", unseen.named_errors),
            **{name: value for each in sums for name, value in each.figures.items()},
        },
        sums=sums,
    )


def _by_alone(relative: RelativeSpeeds, features: Sequence[Feature]) -> Regressor:
    ridge = alone_ridge(relative, features)
    # Features on which nothing depends give a constant, which the exported graph repeats to the bit.
    ridge.coef_, ridge.intercept_ = np.round(ridge.coef_, 9), float(np.float32(ridge.intercept_))
    return ridge


def _refitted(relative: RelativeSpeeds, chosen: Chosen, weight: Floats) -> tuple[Section, Regressor]:
    """Return the products of other rows with the same similarity, and the regression on them."""
    section = section_of(_parameters(relative, *_standardised(relative.pairs.items), chosen), KIND)
    return section, _ridge(section.pair_products(relative.pairs), relative.speed, chosen.weights.noise, weight)


def _errors_of_models(which: str, errors: Floats) -> dict[str, float]:
    return {f"mean error of relative speed, {which}": float(np.mean(np.abs(errors)))} if len(errors) else {}


def _errors_of_pairs(relative: RelativeSpeeds, rows: NDArray[np.float32], noise: float, weight: Floats) -> Floats:
    """Return the errors of the regression that is served, on pairs left out."""
    out = pairs_left_out(rows.astype(np.float64), relative.speed, relative.pair, noise, weight)
    errors: Floats = relative.speed - np.clip(out, 0.0, relative.speed.max())
    return errors


def _standardised(items: Items) -> tuple[Items, Floats, Floats]:
    mean, spread = np.zeros(len(PROFILE)), np.ones(len(PROFILE))
    for column in range(len(PROFILE)):
        known = items.profile[np.isfinite(items.profile[:, column]), column]
        if len(known):
            mean[column] = known.mean()
            spread[column] = known.std() if known.std() > 1e-9 else 1.0
    return replace(items, profile=(items.profile - mean) / spread), mean, spread


def _some_pairs(pair: Rows, generator: np.random.Generator) -> Rows:
    """Return the rows of a random choice of pairs, about `JUDGED_ROWS` of them."""
    if len(pair) <= JUDGED_ROWS:
        return np.arange(len(pair))
    rank = generator.permutation(int(pair.max()) + 1)[pair]
    return np.flatnonzero(rank <= np.sort(rank)[JUDGED_ROWS])


def _parameters(
    relative: RelativeSpeeds, items: Items, mean: Floats, spread: Floats, chosen: Chosen
) -> SectionParameters:
    """Return the parameters that follow from the jobs and their similarity, with the calibration left at 0."""
    sides = [
        Likeness(**asdict(shape), basis=basis(items, shape, MOST_COORDINATES).tolist())
        for shape in (chosen.mine, chosen.other)
    ]
    return SectionParameters(
        items=[
            MeasuredItem(
                group=items.group[row],
                model=items.model[row],
                variant=items.variant[row],
                settings=_optional(items.settings[row]),
                profile=_optional(items.profile[row]),
            )
            for row in range(len(items))
        ],
        profile_mean=mean.tolist(),
        profile_spread=spread.tolist(),
        mine=sides[0],
        other=sides[1],
        products=_products(sides, items, chosen),
        known_factors=(0.0, 0.0),
        named_factors=(0.0, 0.0),
        unseen_errors=(0.0, 0.0),
        unseen_named_errors=(0.0, 0.0),
        alone=(),
        top_speed=float(relative.speed.max()),
    )


def _optional(numbers: Floats) -> list[float | None]:
    return [None if np.isnan(number) else float(number) for number in numbers]


def _products(sides: Sequence[Likeness], items: Items, chosen: Chosen) -> list[tuple[int, int, float]]:
    """Return the coordinates of each side alone and the largest products of both; coordinate 0 is the constant."""
    weights = chosen.weights
    widths = [len(side.basis[0]) for side in sides]
    alone = [(place, 0, weights.mine**0.5) for place in range(1, widths[0] + 1)]
    alone += [(0, place, weights.other**0.5) for place in range(1, widths[1] + 1)]
    # Products of long coordinates explain most of the differences between pairs.
    lengths = [_lengths(items, side) for side in sides]
    size = np.outer(*lengths).ravel()
    order = np.argsort(-size, kind="stable")[: MOST_PRODUCTS - len(alone)]
    both = [(int(place // widths[1]) + 1, int(place % widths[1]) + 1, weights.both**0.5) for place in order]
    return alone + both


def _lengths(items: Items, side: Likeness) -> Floats:
    shape = Shape(**{name: value for name, value in side if name != "basis"})
    lengths: Floats = np.mean((similarity(items, items, shape) @ np.array(side.basis)) ** 2, axis=0)
    return lengths


def _ridge(rows: NDArray[np.float32], target: Floats, noise: float, weight: Floats) -> Regressor:
    from sklearn.linear_model import Ridge

    # The columns are float32, as in service; only the equations are solved in float64.
    return Ridge(alpha=float(noise), solver="cholesky").fit(rows.astype(np.float64), target, sample_weight=weight)


def _named_errors(
    rows: NDArray[np.float32],
    named_rows: NDArray[np.float32],
    relative: RelativeSpeeds,
    noise: float,
    weight: Floats,
    generator: np.random.Generator,
) -> Floats:
    """Return the errors for held-out pairs if only models and sizes are known."""
    fold = (generator.permutation(int(relative.pair.max()) + 1) % PARTS)[relative.pair]
    predicted = np.full(len(relative), relative.speed.mean())
    for part in range(PARTS):
        inside = fold != part
        if inside.any() and not inside.all():
            fitted = _ridge(rows[inside], relative.speed[inside], noise, weight[inside])
            predicted[~inside] = fitted.predict(named_rows[~inside].astype(np.float64))
    errors: Floats = relative.speed - np.clip(predicted, 0.0, relative.speed.max())
    return errors


def _spreads(
    rows: NDArray[np.float32], errors: Floats, pair: Rows, generator: np.random.Generator
) -> tuple[Regressor, tuple[float, float]]:
    """Fit the log of the absolute errors; also return the quantiles of errors over their held-out predictions."""
    from sklearn.linear_model import RidgeCV

    wide = rows.astype(np.float64)
    target = np.log(np.abs(errors) + SMALLEST_ERROR)
    alphas = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
    fitted = RidgeCV(alphas=alphas).fit(wide, target)
    fold = (generator.permutation(int(pair.max()) + 1) % PARTS)[pair]
    predicted = np.full(len(errors), target.mean())
    for part in range(PARTS):
        inside = fold != part
        if inside.any() and not inside.all():
            predicted[~inside] = RidgeCV(alphas=alphas).fit(wide[inside], target[inside]).predict(wide[~inside])
    return fitted, _quantiles(errors / np.exp(predicted))


def _quantiles(errors: Floats) -> tuple[float, float]:
    """Return the ends of a conformal 80 % interval: quantiles corrected for one more row (Vovk)."""
    count = len(errors)
    step = 1.0 / (count + 1)
    ends = np.quantile(errors, [max(0.0, LOW - step), min(1.0, HIGH + step)])
    return float(min(ends[0], 0.0)), float(max(ends[1], 0.0))


def _constants(width: int) -> tuple[Regressor, ...]:
    """Return placeholder regressors for a way of sharing without measurements; their outputs are never used."""
    from sklearn.linear_model import Ridge

    return (Ridge().fit(np.zeros((2, width)), np.ones(2)),) * len(OF_ONE)
