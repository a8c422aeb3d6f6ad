"""Judges forecasts of interference on pairs that were not fitted on."""

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from advisor.errors import ConfigError
from advisor.fit.fitted import bundled
from advisor.fit.interference_files import MeasuredSpeed, RelativeSpeeds, measured
from advisor.fit.interference_fit import fit_measured
from advisor.predict.interference import InterferenceForecaster
from advisor.predict.interference_items import Floats, Rows, Shared
from tools.data.measured_pairs import FORMS, read_counted
from tools.evaluate.score_report import JudgedRows, Report, Score, counted, print_report, score, together

SEED = 20240601
# Below this a row of a type or a model would say little.
LEAST_ROWS = 10
UNIT = ""
# A speed is inside where only rounding keeps it out.
ROUNDING = 1e-6
# Keeps a sum of two effects determined; far below what any row weighs.
STEADY = 1e-3


def interference(
    form: Annotated[str, typer.Option("--format", help=f"Form of the tables: {', '.join(FORMS)}.")],
    train: Annotated[list[Path], typer.Option("--train", help="Tables of measured pairs to fit on.")],
    test: Annotated[list[Path], typer.Option("--test", help="Tables of measured pairs to be judged on.")],
    singles: Annotated[
        Path | None,
        typer.Option("--singles", help="Table of jobs alone, for the forms deepshare and lucid."),
    ] = None,
    folds: Annotated[
        int | None, typer.Option("--folds", help="Number of parts of the pairs; each is judged by the others.")
    ] = None,
    unseen_models: Annotated[
        bool, typer.Option("--unseen-models", help="Judge the pairs of each model by those without it.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Which pairs fall into which part.")] = SEED,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge forecasts of the relative speed of a job beside another; errors are absolute, in relative speed."""
    if form not in FORMS:
        raise ConfigError(f"--format {form}: there are {', '.join(FORMS)}")
    if folds is not None and folds < 2:
        raise ConfigError(f"--folds {folds}: give at least 2")
    if folds is not None and unseen_models:
        raise ConfigError("--folds excludes --unseen-models, which has a part for each model: give one")
    same = sorted(path.resolve() for path in train) == sorted(path.resolve() for path in test)
    if folds is not None and not same:
        raise ConfigError("--folds splits one set of files: name the same files with --train and --test")
    fit_on, left_out = _read(train, form, singles)
    judge_on, left_out = (fit_on, left_out) if same else _read(test, form, singles)
    report = evaluate(
        fit_on,
        judge_on,
        shared=FORMS[form].shared,
        folds=folds,
        unseen_models=unseen_models,
        seed=seed,
    )
    left_out = counted(left_out, report.left_out or {})
    print_report(replace(report, what=f"interference, {form}", left_out=left_out), as_json=json)


def _read(paths: Sequence[Path], form: str, singles: Path | None) -> tuple[list[MeasuredSpeed], Mapping[str, int]]:
    parts = [read_counted(path, form, singles) for path in paths]
    return [side for sides, _ in parts for side in sides], counted(*(left_out for _, left_out in parts))


def evaluate(
    train: Sequence[MeasuredSpeed],
    test: Sequence[MeasuredSpeed],
    *,
    shared: Shared,
    folds: int | None = None,
    unseen_models: bool = False,
    seed: int = SEED,
) -> Report:
    """Fit, forecast and compare; raises `ConfigError` where there is nothing to fit on, or nothing left to judge.

    What jobs do alone is known from the rows of both; what they do beside others only from those to fit on.
    """
    if not train or not test:
        raise ConfigError(f"there is no pair that ran among the rows to {'judge' if train else 'fit on'}: give others")
    one_set = train is test
    table = measured(list(train) if one_set else [*train, *test], shared)
    fit_rows = np.arange(len(train))
    test_rows = fit_rows if one_set else np.arange(len(train), len(table))
    fitted_too = 0
    if not one_set:
        test_rows, fitted_too = _not_fitted_on(table, fit_rows, test_rows)
    splits = [
        (fitted, judged)
        for fitted, judged in splits_of(table, fit_rows, test_rows, folds=folds, unseen_models=unseen_models, seed=seed)
        if len(fitted) and len(judged)
    ]
    if not splits:
        raise ConfigError(
            "no row to judge is left that was not fitted on: give other files, --folds 5 or --unseen-models"
        )
    judged, fit_s, predict_s = _judge(table, splits, seed)
    notes = []
    if unseen_models:
        notes.append("Each model in turn is in no pair that was fitted on; a pair of two models is judged for each.")
    return Report(
        what="interference",
        train_rows=len(train),
        test_rows=len(judged.index),
        fit_s=fit_s,
        predict_s=predict_s,
        left_out=counted(
            {
                "also in the files to fit on": fitted_too,
                "no row left to fit on": len(test_rows) - len(np.unique(judged.index)),
            }
        ),
        scores=tuple(_scores(table, judged)),
        notes=(*notes, "Errors are absolute differences of relative speed, the speed beside another over that alone."),
    )


def _not_fitted_on(table: RelativeSpeeds, fit_rows: Rows, test_rows: Rows) -> tuple[Rows, int]:
    """Return the rows to judge that are no row to fit on, and how many are."""
    identity = _identities(table)
    keys = list(zip(identity[table.pairs.mine], identity[table.pairs.other], table.speed.tolist(), strict=True))
    fitted = {keys[row] for row in fit_rows.tolist()}
    kept = np.array([row for row in test_rows.tolist() if keys[row] not in fitted], dtype=np.intp)
    return kept, len(test_rows) - len(kept)


def _identities(table: RelativeSpeeds, *, with_group: bool = True) -> Rows:
    """Number the jobs of a table, `(n_items,)`; equal ones, on whatever GPU type if asked, have the same number."""
    items = table.pairs.items
    settings = [tuple(row) for row in np.nan_to_num(items.settings, nan=-1.0).tolist()]
    groups = items.group if with_group else ("",) * len(items)
    return _numbered(list(zip(groups, items.model, items.variant, settings, strict=True)))


def _numbered(keys: Sequence[Hashable]) -> Rows:
    number_by_key = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([number_by_key[key] for key in keys], dtype=np.intp)


def splits_of(
    table: RelativeSpeeds, fit_rows: Rows, test_rows: Rows, *, folds: int | None, unseen_models: bool, seed: int
) -> Iterator[tuple[Rows, Rows]]:
    """Yield the rows to fit on and those to judge by them."""
    if unseen_models:
        models = np.array(table.pairs.items.model, dtype=object)
        mine, other = models[table.pairs.mine], models[table.pairs.other]
        for model in sorted(set(mine[test_rows]) | set(other[test_rows])):
            has = (mine == model) | (other == model)
            yield fit_rows[~has[fit_rows]], test_rows[has[test_rows]]
    elif folds is not None:
        numbers = np.unique(table.pair)
        order = np.random.default_rng(seed).permutation(len(numbers)) % folds
        fold = order[np.searchsorted(numbers, table.pair)]
        for part in range(folds):
            yield fit_rows[fold[fit_rows] != part], test_rows[fold[test_rows] == part]
    elif fit_rows is not test_rows:
        yield fit_rows, test_rows


def _judge(table: RelativeSpeeds, splits: Sequence[tuple[Rows, Rows]], seed: int) -> tuple[JudgedRows, float, float]:
    """Return the forecasts of the rows to judge of all splits, and the seconds for fitting and for forecasting."""
    parts: list[JudgedRows] = []
    fit_s = predict_s = 0.0
    for fitted_on, judged in splits:
        train, test = table.take(fitted_on), table.take(judged)
        started_s = time.perf_counter()
        on_gpu = table.shared is Shared.GPU
        fitted = fit_measured(train if on_gpu else None, None if on_gpu else train, seed=seed)
        forecaster = InterferenceForecaster.from_bundle(bundled(fitted))
        fitted_s = time.perf_counter()
        forecast = forecaster.relative_speeds(test.pairs, table.shared)
        fit_s, predict_s = fit_s + fitted_s - started_s, predict_s + time.perf_counter() - fitted_s
        parts.append(JudgedRows(index=judged, forecast=forecast, by_baseline=baselines(train, test)))
    return together(parts), fit_s, predict_s


def _scores(table: RelativeSpeeds, judged: JudgedRows) -> Iterator[Score]:
    speed, forecast = table.speed[judged.index], judged.forecast
    errors = np.abs(forecast.median - speed)
    inside = (forecast.low - ROUNDING <= speed) & (speed <= forecast.high + ROUNDING)

    def of(name: str, rows: NDArray[np.bool_]) -> Score:
        return score(name, UNIT, errors[rows], inside=inside[rows], known=forecast.known[rows])

    yield of("forecast", np.ones(len(speed), dtype=np.bool_))
    for name, said in judged.by_baseline.items():
        yield score(name, UNIT, np.abs(said - speed))
    items = table.pairs.items
    mine = table.pairs.mine[judged.index]
    groups = np.array(items.group, dtype=object)[mine]
    models = np.array(items.model, dtype=object)[mine]
    sides = [(f"forecast, on {group}", groups == group) for group in sorted(set(groups)) if group]
    sides += [(f"forecast, {model} slowed", models == model) for model in sorted(set(models))]
    for name, rows in sides:
        if np.count_nonzero(rows) >= LEAST_ROWS and not rows.all():
            yield of(name, rows)


def baselines(train: RelativeSpeeds, test: RelativeSpeeds) -> Mapping[str, Floats]:
    """Return the relative speeds that each baseline states for the rows of `test`, by its name.

    Both are rows of one table of jobs.
    """
    models = _numbered(train.pairs.items.model)
    overall = np.full(len(test), train.speed.mean())
    by_model = _mean_of(train.speed, models[train.pairs.mine], models[test.pairs.mine], overall)
    by_other = _mean_of(train.speed, models[train.pairs.other], models[test.pairs.other], overall)
    by_two = _mean_of(train.speed, _pairs_of(models, train), _pairs_of(models, test), by_model)
    anywhere = _identities(train, with_group=False)
    return {
        "no interference": np.ones(len(test)),
        "mean of all": overall,
        "mean of the model": by_model,
        "mean of each of the two models": (by_model + by_other) / 2.0,
        "mean of the two models together": by_two,
        # Where the pair was measured on the GPU type itself it is held out.
        "the same pair on another GPU type": _mean_of(
            train.speed, _pairs_of(anywhere, train), _pairs_of(anywhere, test), by_two
        ),
        "model + model": _added(train, test, models),
        "job + job": _added(train, test, _identities(train)),
    }


def _pairs_of(numbers: Rows, rows: RelativeSpeeds) -> Rows:
    """Number the pairs of rows, `(n_rows,)`, by the numbers `(n_items,)` of their jobs."""
    pairs: Rows = numbers[rows.pairs.mine] * (numbers.max() + 1) + numbers[rows.pairs.other]
    return pairs


def _mean_of(speed: Floats, keys: Rows, asked: Rows, otherwise: Floats) -> Floats:
    """Return the mean speed of the rows with each key that is asked; `otherwise` where there is none."""
    size = int(max(keys.max(), asked.max())) + 1
    total, count = np.bincount(keys, speed, size)[asked], np.bincount(keys, minlength=size)[asked]
    return np.where(count > 0, total / np.maximum(count, 1), otherwise)


def _added(train: RelativeSpeeds, test: RelativeSpeeds, numbers: Rows) -> Floats:
    """Return the mean, plus what the slowed one and the other each add, by least squares; nothing if never seen.

    `numbers` `(n_items,)` tell apart what adds something.
    """
    one_hot = np.eye(int(numbers.max()) + 1)
    known, asked = (
        np.hstack([one_hot[numbers[rows.pairs.mine]], one_hot[numbers[rows.pairs.other]]]) for rows in (train, test)
    )
    mean = train.speed.mean()
    effects = np.linalg.solve(known.T @ known + STEADY * np.eye(known.shape[1]), known.T @ (train.speed - mean))
    return np.asarray(np.clip(mean + asked @ effects, 0.0, train.speed.max()))
