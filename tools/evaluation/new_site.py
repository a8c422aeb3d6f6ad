"""How fast the performance model learns a site from measured rows, beside the interference forecast."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from scipy.stats import t as student

from advisor.errors import ConfigError
from advisor.fit.export import bundled
from advisor.fit.interference_files import RelativeSpeeds
from advisor.fit.interference_fit import LEAST_ROWS, fit_measured
from advisor.fit.performance_fit import SitePrior, adapted
from advisor.predict.interference import InterferenceForecaster
from advisor.predict.interference_items import Floats
from advisor.predict.intervals import Intervals
from advisor.sim.profiles import NEUTRAL, load_profiles
from tools.evaluation.interference import ROUNDING, baselines
from tools.evaluation.performance_rows import models_in, prior_of, samples_of, served, speeds_of
from tools.evaluation.report import Report, Score, score
from tools.measured_prior import profiled_added

SIZES: Final = (5, 10, 20, 40, 80)
ADAPTED: Final = "performance model"
FITTED: Final = "interference forecast"
UNADAPTED: Final = "performance model, prior alone"
MEANS: Final = "mean of the two models together"
NOTHING: Final = "no interference"
# The errors of a forecast, `(n_repetitions, n_rows)`, and whether its interval holds the speed.
Errors = tuple[Floats, np.ndarray]


def elsewhere_prior(models: tuple[str, ...]) -> SitePrior:
    """Return a prior without knowledge of some models: each adds what the profiles of other models add on average."""
    profiles = load_profiles()
    rows = [
        row for row, name in enumerate(profiles.names) if name != NEUTRAL and "/" not in name and name not in models
    ]
    added = profiled_added(profiles, np.array(rows, np.intp)).mean()
    return prior_of(models, np.full((len(models), len(models)), added))


def new_site_report(
    table: RelativeSpeeds,
    *,
    repetitions: int,
    seed: int,
    notes: Sequence[str] = (),
    sizes: Sequence[int] = SIZES,
) -> Report:
    """Adapt to the first rows of a random order and judge the rows behind the largest number, again and again.

    Raises `ConfigError` where there are no such rows.
    """
    if len(table) <= max(sizes):
        raise ConfigError(f"{len(table)} measured rows leave none to judge behind {max(sizes)}: give more")
    models, prior = models_in(table), elsewhere_prior(models_in(table))
    errors: dict[tuple[int, str], list[Errors]] = {}
    for repetition in range(repetitions):
        order = np.random.default_rng([seed, repetition]).permutation(len(table))
        test = table.take(order[max(sizes) :])
        for size in (0, *sizes):
            for name, stated in _forecasts(table.take(order[:size]), test, prior, models, seed).items():
                inside = (stated.low - ROUNDING <= test.speed) & (test.speed <= stated.high + ROUNDING)
                errors.setdefault((size, name), []).append((np.abs(stated.median - test.speed), inside))
    return Report(
        what="performance, a new site",
        train_rows=max(sizes),
        test_rows=len(table) - max(sizes),
        left_out={"adapted to, others in each draw": max(sizes)},
        scores=tuple(_score(size, name, parts) for (size, name), parts in errors.items()),
        notes=(
            *notes,
            (
                f"{repetitions} draws of the rows; in each, all forecasts are judged on the same rows behind the first"
                f" {max(sizes)}."
            ),
            "The prior knows none of the models: each adds what the profiles of all other models add on average.",
            f"The interference forecast cannot be fitted to fewer than {LEAST_ROWS} rows.",
            *_differences(errors, sizes),
        ),
    )


def _forecasts(
    train: RelativeSpeeds, test: RelativeSpeeds, prior: SitePrior, models: tuple[str, ...], seed: int
) -> Mapping[str, Intervals]:
    model = served(adapted(prior, samples_of(train, models), seed=seed), seed=seed)
    if not len(train):
        return {UNADAPTED: speeds_of(model, test), NOTHING: _bare(np.ones(len(test)))}
    forecasts = {ADAPTED: speeds_of(model, test), MEANS: _bare(baselines(train, test)[MEANS])}
    if len(train) >= LEAST_ROWS:
        fitted = InterferenceForecaster.from_bundle(bundled(fit_measured(None, train, seed=seed)))
        forecasts[FITTED] = fitted.relative_speeds(test.pairs, test.shared)
    return forecasts


def _bare(speeds: Floats) -> Intervals:
    """Return speeds without an interval."""
    return Intervals(low=speeds, median=speeds, high=speeds, known=np.ones(len(speeds), np.bool_))


def _score(size: int, name: str, parts: Sequence[Errors]) -> Score:
    has_interval = name not in {MEANS, NOTHING}
    text = name if size == 0 else f"{size} rows: {name}"
    inside = np.concatenate([inside for _, inside in parts]) if has_interval else None
    return score(text, "", np.concatenate([error for error, _ in parts]), inside=inside)


def _differences(errors: Mapping[tuple[int, str], Sequence[Errors]], sizes: Sequence[int]) -> list[str]:
    lines = []
    quantile = float(student.ppf(0.975, len(errors[0, UNADAPTED]) - 1))
    for size in sizes:
        ours = np.array([error.mean() for error, _ in errors[size, ADAPTED]])
        for others in ((0, UNADAPTED), (size, MEANS), (size, FITTED)):
            if others in errors:
                difference = ours - np.array([error.mean() for error, _ in errors[others]])
                half = quantile * float(difference.std(ddof=1)) / len(difference) ** 0.5
                lines.append(
                    f"{size} rows, error of the {ADAPTED} less that of {others[1].removeprefix(f'{ADAPTED}, ')}:"
                    f" {difference.mean():+.4f} ({difference.mean() - half:+.4f} to {difference.mean() + half:+.4f},"
                    f" 95 % over draws); it is closer in {np.count_nonzero(difference < 0)} of {len(difference)} draws."
                )
    return lines
