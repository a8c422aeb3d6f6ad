"""Fits the model of interference to measured pairs of jobs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.errors import ConfigError
from advisor.fit.fitted import Fitted, Source, source_of
from advisor.fit.interference_files import FORMS, RelativeSpeeds, form_of, measured, read_sides, read_table
from advisor.fit.interference_kernel import Chosen, basis, search, steadied
from advisor.predict.interference import KIND
from advisor.predict.interference_items import PROFILE, Floats, Items, Rows, Shape, Shared, similarity
from advisor.predict.interference_section import (
    COLUMNS,
    MOST_COLUMNS,
    OUTPUTS,
    InterferenceParameters,
    Likeness,
    MeasuredItem,
    Section,
    SectionParameters,
    section_of,
)

LEAST_ROWS = 20
MOST_COORDINATES = 48
# The most rows for the closed form, which more would make slow; the quantiles need no more.
JUDGED_ROWS = 2000
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
    """One way of sharing: its parameters, its regressors for speed and spread, and its errors on held-out rows."""

    parameters: SectionParameters
    regressors: tuple[Any, Any, Any]
    rows: NDArray[np.float32]
    error_of_pairs: float
    error_of_models: float | None


def fit_interference(files: Sequence[Path], *, seed: int) -> Fitted:
    """Fit to files of measured pairs, whose columns determine their form; raises `ConfigError`."""
    sides: dict[Shared, list[Any]] = {Shared.GPU: [], Shared.NODE: []}
    sources = []
    for file in files:
        form = form_of(file, read_table(file).header)
        speeds = read_sides(file, form)
        sides[FORMS[form].shared] += speeds
        sources.append(source_of(file.name, file.read_bytes(), len(speeds)))
    gpu, node = (measured(speeds, shared) if speeds else None for shared, speeds in sides.items())
    return fit_measured(gpu, node, seed=seed, sources=tuple(sources))


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
    regressors = [
        regressor for section in fitted for regressor in (_constants() if section is None else section.regressors)
    ]
    parameters = InterferenceParameters(
        gpu=None if fitted[0] is None else fitted[0].parameters,
        node=None if fitted[1] is None else fitted[1].parameters,
    )
    metrics: dict[str, float] = {}
    for name, section in zip(("shared GPU", "shared nodes"), fitted, strict=True):
        if section is not None:
            metrics[f"{name}: mean error of relative speed, pairs left out"] = section.error_of_pairs
            if section.error_of_models is not None:
                metrics[f"{name}: mean error of relative speed, models left out"] = section.error_of_models
    return Fitted(
        kind=KIND,
        columns=COLUMNS,
        outputs=OUTPUTS,
        regressors=tuple(regressors),
        parameters=parameters.model_dump_json(),
        probe=np.concatenate([section.rows[:: max(1, len(section.rows) // 200)] for section in present]),
        sources=sources,
        metrics=metrics,
        seed=seed,
        text=_TEXT,
    )


def _fit_section(relative: RelativeSpeeds, generator: np.random.Generator) -> FittedSection:
    if len(relative) < LEAST_ROWS or len(set(relative.pair.tolist())) < 3:
        raise ConfigError(
            f"{len(relative)} measured rows are too few to fit interference to: give at least {LEAST_ROWS}"
        )
    items, mean, spread = _standardised(relative.pairs.items)
    pairs = replace(relative.pairs, items=items)
    chosen = search(pairs, relative.speed, relative.pair, generator)
    judged = _some_pairs(relative.pair, generator)
    shown, out = steadied(pairs.take(judged), relative.speed[judged], relative.pair[judged], chosen)
    draft = _parameters(relative, items, mean, spread, chosen)
    section = section_of(draft, KIND)
    rows, named_rows = section.pair_columns(relative.pairs), _named_columns(section, relative)
    weight = np.ones(len(relative))
    weight[judged] = shown
    speeds = _ridge(rows, relative.speed, chosen.weights.noise, weight)
    errors = relative.speed[judged] - np.clip(out.by_pair, 0.0, draft.top_speed)
    spreads, factors = _spreads(rows[judged], errors, relative.pair[judged], generator)
    model_errors = relative.speed[judged][out.rows] - np.clip(out.by_model, 0.0, draft.top_speed)
    unseen = _quantiles(model_errors if len(model_errors) else 2.0 * errors)
    named_errors = _named_errors(rows, named_rows, relative, chosen.weights.noise, weight, generator)
    named, named_factors = _spreads(named_rows, named_errors, relative.pair, generator)
    known = draft.model_copy(update={"known_factors": factors, "named_factors": named_factors, "unseen_errors": unseen})
    return FittedSection(
        parameters=SectionParameters.model_validate(known.model_dump()),
        regressors=(speeds, spreads, named),
        rows=rows,
        error_of_pairs=float(np.mean(np.abs(errors))),
        error_of_models=float(np.mean(np.abs(model_errors))) if len(model_errors) else None,
    )


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
    sides = [_likeness(items, shape) for shape in (chosen.mine, chosen.other)]
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
        top_speed=float(relative.speed.max()),
    )


def _optional(numbers: Floats) -> list[float | None]:
    return [None if np.isnan(number) else float(number) for number in numbers]


def _likeness(items: Items, shape: Shape) -> Likeness:
    return Likeness(**asdict(shape), basis=basis(items, shape, MOST_COORDINATES).tolist())


def _products(sides: Sequence[Likeness], items: Items, chosen: Chosen) -> list[tuple[int, int, float]]:
    """Return the coordinates of each side alone and the largest products of both; coordinate 0 is the constant."""
    weights = chosen.weights
    widths = [len(side.basis[0]) for side in sides]
    alone = [(place, 0, weights.mine**0.5) for place in range(1, widths[0] + 1)]
    alone += [(0, place, weights.other**0.5) for place in range(1, widths[1] + 1)]
    # Products of long coordinates explain most of the differences between pairs.
    lengths = [_lengths(items, side) for side in sides]
    size = np.outer(*lengths).ravel()
    order = np.argsort(-size, kind="stable")[: MOST_COLUMNS - len(alone)]
    both = [(int(place // widths[1]) + 1, int(place % widths[1]) + 1, weights.both**0.5) for place in order]
    return alone + both


def _lengths(items: Items, side: Likeness) -> Floats:
    shape = Shape(**{name: value for name, value in side if name != "basis"})
    lengths: Floats = np.mean((similarity(items, items, shape) @ np.array(side.basis)) ** 2, axis=0)
    return lengths


def _ridge(rows: NDArray[np.float32], target: Floats, noise: float, weight: Floats) -> Any:
    from sklearn.linear_model import Ridge

    # The columns are float32, as in service; only the equations are solved in float64.
    return Ridge(alpha=float(noise), solver="cholesky").fit(rows.astype(np.float64), target, sample_weight=weight)


def _named_columns(section: Section, relative: RelativeSpeeds) -> NDArray[np.float32]:
    """Return the columns of the same pairs if only models and sizes are known, as for live jobs."""
    items = relative.pairs.items
    settings = items.settings.copy()
    settings[:, 0] = np.nan
    shares, _ = section.shares(np.array([section.code(model) for model in items.model], np.intp), settings)
    return section.named_columns(shares[relative.pairs.mine], shares[relative.pairs.other])


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
) -> tuple[Any, tuple[float, float]]:
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


def _constants() -> tuple[Any, Any, Any]:
    """Return placeholder regressors for a way of sharing without measurements; their outputs are never used."""
    from sklearn.linear_model import Ridge

    nothing = np.zeros((2, MOST_COLUMNS))
    return Ridge().fit(nothing, np.ones(2)), Ridge().fit(nothing, np.zeros(2)), Ridge().fit(nothing, np.zeros(2))
