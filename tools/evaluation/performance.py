"""How far off the performance model is on measured rows, beside the interference forecast on the same rows."""

import csv
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer

from advisor.errors import ConfigError
from advisor.fit.export import bundled
from advisor.fit.interference_files import RelativeSpeeds, measured, read_counted
from advisor.fit.interference_fit import fit_measured
from advisor.fit.performance_fit import SitePrior, adapted, no_samples
from advisor.predict.interference import InterferenceForecaster
from advisor.predict.interference_items import Floats, Rows, Shared
from advisor.predict.intervals import Intervals
from tools.evaluation.interference import LEAST_ROWS, ROUNDING, SEED, baselines, splits_of
from tools.evaluation.new_site import new_site_report
from tools.evaluation.performance_rows import (
    flat_prior,
    models_in,
    named_speeds,
    pairs_prior,
    samples_of,
    served,
    speeds_of,
)
from tools.evaluation.report import Report, Score, counted, print_report, score
from tools.evaluation.served import ManyFiles
from tools.evaluation.type_speeds import type_report

# Only rows of jobs that share nodes can be judged: the model has no effect of a shared GPU.
FORM: Final = "deepshare"
MODEL: Final = "performance model"
INTERFERENCE: Final = "interference forecast"
BY_NAME: Final = "interference forecast, names alone"
FLAT: Final = "performance model, flat prior"
UNADAPTED: Final = "performance model, prior alone"
SIZES_OF_ROWS: Final = (
    "The rows state the GPUs and nodes of both sides. The interference forecast uses them; they are no part of the"
    " performance model."
)
RESAMPLES: Final = 10_000
REPETITIONS: Final = 10
ROW_COLUMNS: Final = (
    "model", "gpus", "nodes", "corunner_model", "corunner_gpus", "corunner_nodes", "throughput_ratio",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The forecasts for the judged rows by name, row by row; `plain` has those of baselines without intervals."""

    rows: Rows
    forecasts: Mapping[str, Intervals]
    plain: Mapping[str, Floats]
    fit_s: float
    predict_s: float


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("performance", cls=ManyFiles)(performance)


def performance(  # noqa: PLR0913, PLR0917 - a command takes the options it has
    pairs: Annotated[
        list[Path] | None, typer.Option("--pairs", help=f"Tables of measured pairs on shared nodes, form {FORM}.")
    ] = None,
    folds: Annotated[
        int | None, typer.Option("--folds", help="Number of parts of the pairs; each is judged by the others.")
    ] = None,
    unseen_models: Annotated[
        bool, typer.Option("--unseen-models", help="Judge the pairs of each model by those without it.")
    ] = False,
    new_site: Annotated[
        bool, typer.Option("--new-site", help="Adapt to a few rows of the tables and judge the others.")
    ] = False,
    repetitions: Annotated[int, typer.Option("--repetitions", help="Draws of the rows of --new-site.")] = REPETITIONS,
    types: Annotated[
        Path | None, typer.Option("--types", help="Table of speeds on several GPU types: judge the effects of types.")
    ] = None,
    by_row: Annotated[
        Path | None, typer.Option("--by-row", help="Write the forecasts for each judged row to this table.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Which pairs fall into which part.")] = SEED,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge the performance model on measured rows; errors are absolute, in relative speed."""
    if (pairs is None) == (types is None):
        raise ConfigError("give either --pairs with measured pairs or --types with speeds on several GPU types")
    ways = [name for name, given in (("--folds", folds is not None), ("--unseen-models", unseen_models),
                                     ("--new-site", new_site)) if given]  # fmt: skip
    if types is not None:
        if ways or by_row:
            raise ConfigError(f"{(ways or ['--by-row'])[0]} is for --pairs")
        print_report(type_report(types, seed=seed), as_json=json)
        return
    if len(ways) != 1:
        raise ConfigError(
            "give one of --folds, --unseen-models and --new-site: they say which rows are judged by which"
        )
    if (folds is not None and folds < 2) or repetitions < 2:
        raise ConfigError("--folds and --repetitions: give at least 2")
    if by_row is not None and new_site:
        raise ConfigError("--by-row is for --folds and --unseen-models")
    table, unread = read_pairs(pairs or [])
    if new_site:
        report = new_site_report(table, repetitions=repetitions, seed=seed, notes=(SIZES_OF_ROWS,))
    else:
        compared = compare_rows(table, folds=folds, seed=seed)
        report = report_of(table, compared, notes=(SIZES_OF_ROWS,), seed=seed)
        if by_row is not None:
            write_rows(table, compared, by_row)
    print_report(replace(report, left_out=counted(unread, report.left_out or {})), as_json=json)


def read_pairs(files: Sequence[Path]) -> tuple[RelativeSpeeds, Mapping[str, int]]:
    """Read tables of measured pairs, and count the rows that are left out by reason; raises `ConfigError`."""
    parts = [read_counted(path, FORM) for path in files]
    sides = [side for sides, _ in parts for side in sides]
    if not sides:
        raise ConfigError("there is no pair that was measured among the rows: give others")
    return measured(sides, Shared.NODE), counted(*(left_out for _, left_out in parts))


def compare_rows(table: RelativeSpeeds, *, folds: int | None, seed: int = SEED) -> Compared:
    """Forecast each row by the others: by those of other pairs, or without `folds` by those without one of its models.

    Raises `ConfigError` where there are too few rows to fit on.
    """
    everything = np.arange(len(table))
    parts = [
        _part(table, fitted_on, judged, seed)
        for fitted_on, judged in splits_of(
            table, everything, everything, folds=folds, unseen_models=folds is None, seed=seed
        )
        if len(fitted_on) and len(judged)
    ]
    if not parts:
        raise ConfigError("no row to judge is left that was not fitted on: give more rows")
    return Compared(
        rows=np.concatenate([part.rows for part in parts]),
        forecasts={name: _joined([part.forecasts[name] for part in parts]) for name in parts[0].forecasts},
        plain={name: np.concatenate([part.plain[name] for part in parts]) for name in parts[0].plain},
        fit_s=sum(part.fit_s for part in parts),
        predict_s=sum(part.predict_s for part in parts),
    )


def _part(table: RelativeSpeeds, fitted_on: Rows, judged: Rows, seed: int) -> Compared:
    train, test = table.take(fitted_on), table.take(judged)
    models = models_in(train)
    forecaster = InterferenceForecaster.from_bundle(bundled(fit_measured(None, train, seed=seed)))
    prior, samples, flat = pairs_prior(forecaster, models), samples_of(train, models), flat_prior(train, models)
    began_s = time.perf_counter()
    model = served(adapted(prior, samples, seed=seed), seed=seed)
    fitted_s = time.perf_counter()
    forecasts = {MODEL: speeds_of(model, test)}
    ended_s = time.perf_counter()
    forecasts |= {
        INTERFERENCE: forecaster.relative_speeds(test.pairs, table.shared),
        BY_NAME: named_speeds(forecaster, test, models),
        FLAT: speeds_of(served(adapted(flat, samples, seed=seed), seed=seed), test),
        UNADAPTED: unadapted(prior, test, seed=seed),
    }
    return Compared(
        rows=judged,
        forecasts=forecasts,
        plain=baselines(train, test),
        fit_s=fitted_s - began_s,
        predict_s=ended_s - fitted_s,
    )


def unadapted(prior: SitePrior, rows: RelativeSpeeds, *, seed: int) -> Intervals:
    """Return the forecasts of a prior that has seen no row."""
    return speeds_of(served(adapted(prior, no_samples(len(prior.models)), seed=seed), seed=seed), rows)


def _joined(parts: Sequence[Intervals]) -> Intervals:
    return Intervals(
        low=np.concatenate([part.low for part in parts]),
        median=np.concatenate([part.median for part in parts]),
        high=np.concatenate([part.high for part in parts]),
        known=np.concatenate([part.known for part in parts]),
    )


def report_of(table: RelativeSpeeds, compared: Compared, *, notes: Sequence[str] = (), seed: int = SEED) -> Report:
    """Return the scores of all forecasts, over all rows and by the slowed model."""
    speed = table.speed[compared.rows]
    names = np.array(table.pairs.items.model, dtype=object)[table.pairs.mine[compared.rows]]
    scores = [_score(name, stated, speed, np.ones(len(speed), np.bool_)) for name, stated in compared.forecasts.items()]
    scores += [score(name, "", np.abs(stated - speed)) for name, stated in compared.plain.items()]
    for slowed in sorted(set(names)):
        rows = names == slowed
        if np.count_nonzero(rows) >= LEAST_ROWS:
            scores += [
                _score(f"{name}, {slowed} slowed", compared.forecasts[name], speed, rows)
                for name in (MODEL, INTERFERENCE)
            ]
    pair = table.pair[compared.rows]
    error = {name: np.abs(stated.median - speed) for name, stated in compared.forecasts.items()}
    return Report(
        what="performance",
        train_rows=len(table),
        test_rows=len(speed),
        fit_s=compared.fit_s,
        predict_s=compared.predict_s,
        left_out=counted({"no row left to fit on": len(table) - len(np.unique(compared.rows))}),
        scores=tuple(scores),
        notes=(
            *notes,
            *(_difference(error[MODEL] - error[name], pair, name, seed) for name in (INTERFERENCE, BY_NAME)),
            (
                "The prior is the table of the interference forecast by name, fitted on the same rows as the model"
                " adapts to; a model without rows among them has the mean of the others. Flat: one mean for all pairs."
            ),
            "Errors are absolute differences of relative speed, the speed beside another over that alone.",
        ),
    )


def _score(name: str, stated: Intervals, speed: Floats, rows: np.ndarray) -> Score:
    inside = (stated.low - ROUNDING <= speed) & (speed <= stated.high + ROUNDING)
    return score(name, "", np.abs(stated.median - speed)[rows], inside=inside[rows], known=stated.known[rows])


def _difference(difference: Floats, pair: Rows, name: str, seed: int) -> str:
    """Return the mean difference of errors in words, with a 95 % interval from resampled pairs."""
    _, place = np.unique(pair, return_inverse=True)
    totals, counts = np.bincount(place, difference), np.bincount(place)
    drawn = np.random.default_rng(seed).integers(len(totals), size=(RESAMPLES, len(totals)))
    means = totals[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return (
        f"Error of the {MODEL} less that of the {name}: {difference.mean():+.4f} ({low:+.4f} to {high:+.4f}, 95 %);"
        f" it is closer on {np.mean(difference < 0):.0%} of the rows."
    )


def write_rows(table: RelativeSpeeds, compared: Compared, path: Path) -> None:
    """Write the judged rows with the forecasts for each."""
    items = table.pairs.items
    sizes = np.rint(2.0 ** items.settings[:, 1:]).astype(int)
    with path.open("w", newline="", encoding="utf-8") as stream:
        lines = csv.writer(stream)
        lines.writerow((*ROW_COLUMNS, *compared.forecasts, *compared.plain))
        for place, row in enumerate(compared.rows.tolist()):
            mine, other = int(table.pairs.mine[row]), int(table.pairs.other[row])
            stated = [*(each.median for each in compared.forecasts.values()), *compared.plain.values()]
            lines.writerow(
                (
                    items.model[mine], *sizes[mine], items.model[other], *sizes[other], f"{table.speed[row]:.3f}",
                    *(f"{column[place]:.4f}" for column in stated),
                )
            )  # fmt: skip
