"""Judges forecasts of step times on placements and models that were not fitted on."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.stats import kendalltau

from advisor.errors import ConfigError
from advisor.fit.fitted import bundled
from advisor.fit.throughput_data import StepTimes, files_of
from advisor.fit.throughput_fit import fit_measured
from advisor.fit.throughput_population import work_of
from advisor.predict.interference_items import name_key
from advisor.predict.intervals import Intervals
from advisor.predict.throughput import PlacementTable, ThroughputForecaster
from advisor.predict.throughput_site import SitePoints
from tools.data.step_times import FORMS, GPUS_PER_NODE, read_counted
from tools.evaluate.score_report import JudgedRows, Report, Score, counted, print_report, score, together

SEED = 20240601
LEFT_OUT = ("model", "cluster")
Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]

LINEAR, ROOT, CURVE, NEAREST = (
    "linear from the nearest known point",
    "GPUs**0.9 from the nearest known point",
    "mean curve of the training models",
    "nearest known placement",
)
_ALMOST = 0.9
# Octaves of the GPUs that one octave of the batch counts for.
_BATCH_WEIGHT = 2.0
# The words of `--profile`.
COMPARISONS: Mapping[str, Callable[[Vector, float], Mask]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<=": np.less_equal,
    ">=": np.greater_equal,
    "<": np.less,
    ">": np.greater,
}
_COMPARISON = re.compile(rf"(\w+)\s*({'|'.join(COMPARISONS)})\s*(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Holds what to fit on, which points of the site are known, and what to judge: all of one model.

    `points` are those of the job itself, `others` those of another model on its network. `index` says which rows of the
    test are to be judged. `name` is what the job calls its model.
    """

    train: StepTimes
    points: StepTimes
    others: StepTimes
    index: NDArray[np.intp]
    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Holds what is known of the model to judge, beside the training, and what is left out of that.

    `profile` and `point` are comparisons of rows: all rows that match the first are known, one of those that match the
    second. With `of_another` that one, and its rows of `profile`, are those of another model, each in turn.
    """

    profile: str | None = None
    point: str | None = None
    of_another: bool = False
    unnamed: bool = False
    left_out: str = "model"


def throughput(  # noqa: PLR0913, PLR0917 - a command takes the options it has
    test: Annotated[list[Path], typer.Option("--test", help="Files, or folders of files, to be judged on.")],
    form: Annotated[str, typer.Option("--format", help=f"Form of the files: {', '.join(FORMS)}.")] = "pollux",
    train: Annotated[list[Path] | None, typer.Option("--train", help="Files, or folders of files, to fit on.")] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", help='Rows to be judged that are known, as "nodes==1 and gpus<=2".')
    ] = None,
    point: Annotated[
        str | None, typer.Option("--point", help='One further known row, as "gpus==2 and nodes==2"; of a middle batch.')
    ] = None,
    of_another: Annotated[
        bool, typer.Option("--of-another", help="The row of --point is of another model of the cluster, each in turn.")
    ] = False,
    unnamed: Annotated[bool, typer.Option("--unnamed", help="Jobs do not name their model.")] = False,
    left_out: Annotated[
        str, typer.Option("--leave-out", help=f"What is not fitted on: {', '.join(LEFT_OUT)} of the rows to judge.")
    ] = "model",
    folds: Annotated[
        int | None, typer.Option("--folds", help="Number of parts of the placements; each is judged by the others.")
    ] = None,
    gpus_per_node: Annotated[
        int, typer.Option("--gpus-per-node", min=1, help="GPUs of a node, which elasticflow files do not state.")
    ] = GPUS_PER_NODE,
    seed: Annotated[int, typer.Option("--seed", help="Which placements fall into which part.")] = SEED,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge forecasts as they are served; errors are percentages of the step time, or of iterations/s (elasticflow)."""
    if form not in FORMS:
        raise ConfigError(f"--format {form}: there are {', '.join(FORMS)}")
    if left_out not in LEFT_OUT:
        raise ConfigError(f"--leave-out {left_out}: there are {', '.join(LEFT_OUT)}")
    train_files, test_files = files_of(train or []), files_of(test)
    judge_on, unread = read_counted(test_files, form, gpus_per_node)
    fit_on, _ = read_counted(train_files, form, gpus_per_node)
    known = Known(profile=profile, point=point, of_another=of_another, unnamed=unnamed, left_out=left_out)
    report = evaluate(fit_on, judge_on, known, folds=folds, seed=seed, is_rate=form == "elasticflow")
    print_report(replace(report, left_out=counted(unread, report.left_out or {})), as_json=json)


def evaluate(
    train: StepTimes,
    test: StepTimes,
    known: Known,
    *,
    folds: int | None = None,
    seed: int = SEED,
    is_rate: bool = False,
) -> Report:
    """Fit, forecast and compare; raises `ConfigError` where nothing is left to judge.

    `is_rate` counts errors in iterations per second instead of seconds.
    """
    if folds is not None and (known != Known() or folds < 2):
        raise ConfigError(
            "--folds takes 2 or more, and excludes --profile and its like: its parts are placements that are not known"
        )
    if known.of_another and known.point is None:
        raise ConfigError("--of-another needs --point: the row of the other model that is known")
    notes: list[str] = []
    splits = list(_parts(train, test, folds, seed, notes) if folds else _models(train, test, known, notes))
    if not splits:
        raise ConfigError("no row is left to judge: every row of --test matches --profile, or none --point")
    judged, fit_s, predict_s = _judge(test, splits, seed)
    if judged is None:
        raise ConfigError("nothing is left to judge: every row of --test has the fewest GPUs of its model")
    rows = test.take(judged.index)
    whole = np.ones(len(rows), dtype=np.bool_)
    scores = [_score("throughput", rows, judged, whole, None, is_rate)]
    scores += [_score(name, rows, judged, whole, name, is_rate) for name in judged.by_baseline]
    for what, units in (("", rows.model), ("on ", rows.cluster)):
        names = sorted(set(units.tolist()))
        for name in names if len(names) > 1 else ():
            scores.append(_score(f"throughput: {what}{name}", rows, judged, units == name, None, is_rate))
    return Report(
        what="throughput, error of the " + ("iterations per second" if is_rate else "step time"),
        train_rows=len(train),
        test_rows=len(rows),
        fit_s=fit_s,
        predict_s=predict_s,
        left_out=_left_out(test, known, splits, judged),
        scores=tuple(scores),
        notes=tuple(notes),
    )


def _left_out(test: StepTimes, known: Known, splits: Sequence[Split], judged: JudgedRows) -> Mapping[str, int]:
    """Count the rows of the test that no forecast was judged on, each under the first reason that holds."""
    rest = np.ones(len(test), dtype=np.bool_)
    rest[judged.index] = False
    in_split = np.zeros(len(test), dtype=np.bool_)
    in_split[np.concatenate([split.index for split in splits])] = True
    left_out = {}
    for reason, rows in (
        ("known by --profile", _matching(known.profile, test)),
        ("forecasts start from them", in_split),
        ("nothing matches --point for them", np.ones(len(test), dtype=np.bool_)),
    ):
        left_out[reason] = int(np.count_nonzero(rest & rows))
        rest &= ~rows
    return counted(left_out)


def _models(train: StepTimes, test: StepTimes, known: Known, notes: list[str]) -> Iterator[Split]:
    """Split by model: it, or its cluster, is left out of the training where any of its rows to judge stand there."""
    given = _matching(known.profile, test)
    names = np.array([name_key(name) for name in train.model.tolist()], dtype=np.str_)
    trained = set(_fingerprints(train))
    left_out = []
    kinds = sorted(set(zip(test.cluster.tolist(), test.model.tolist(), strict=True)))
    for cluster, model in kinds:
        own = (test.cluster == cluster) & (test.model == model)
        if given[own].all():
            continue
        fit_on, key = train, ""
        if not trained.isdisjoint(_fingerprints(test.take(own & ~given))):
            is_model = known.left_out == "model"
            left_out.append(model if is_model else cluster)
            fit_on = train.take(names != name_key(model) if is_model else train.cluster != cluster)
            key = name_key(model) if is_model else cluster
        for points, others in _known_rows(test, given, known, (cluster, model), kinds):
            yield Split(
                train=fit_on,
                points=test.take(points),
                others=test.take(others),
                index=np.flatnonzero(own & ~points),
                name="" if known.unnamed else model,
                key=key,
            )
    if left_out:
        notes.append(
            f"Rows to judge stand in --train: {', '.join(dict.fromkeys(left_out))}, each left out of the training "
            "when its own rows were judged."
        )
    if known.profile is not None and not given.any():
        notes.append(f"No row of --test matches --profile {known.profile!r}.")


def _known_rows(
    test: StepTimes, given: Mask, known: Known, judged: tuple[str, str], kinds: Sequence[tuple[str, str]]
) -> Iterator[tuple[Mask, Mask]]:
    """Return which rows of the job and of another model are known, `(n_rows,)` each, once for each other model."""

    def rows_of(kind: tuple[str, str]) -> Mask:
        return np.asarray((test.cluster == kind[0]) & (test.model == kind[1]), dtype=np.bool_)

    own, nothing = rows_of(judged) & given, np.zeros(len(test), dtype=np.bool_)
    if known.point is None:
        yield own, nothing
        return
    of = [kind for kind in kinds if kind[0] == judged[0] and kind != judged] if known.of_another else [judged]
    for kind in of:
        candidates = np.flatnonzero(rows_of(kind) & ~given & _matching(known.point, test))
        if len(candidates):
            middle = candidates[np.argsort(test.batch_asked[candidates], kind="stable")[len(candidates) // 2]]
            with_point = rows_of(kind) & given
            with_point[middle] = True
            yield (own, with_point) if known.of_another else (with_point, nothing)


def _matching(text: str | None, rows: StepTimes) -> Mask:
    if text is None:
        return np.zeros(len(rows), dtype=np.bool_)
    columns = {"nodes": rows.nodes, "gpus": rows.gpus, "batch": rows.batch_asked, "local_bsz": rows.batch_asked}
    return matching(text, columns | {"local_batch": rows.batch})


def _parts(train: StepTimes, test: StepTimes, folds: int, seed: int, notes: list[str]) -> Iterator[Split]:
    """Split by placement: no placement is both fitted on and judged, whatever its model and its batch."""
    shapes, among = train.shapes(), test.shapes()
    dealt = fold_of([*shapes, *among], folds, np.random.default_rng(seed))
    of_train, of_test = dealt[: len(train)], dealt[len(train) :]
    fresh = ~np.isin(np.array(_fingerprints(test)), np.array(_fingerprints(train), dtype=np.str_))
    whole = _joined(train, test.take(fresh))
    of_whole = np.concatenate([of_train, of_test[fresh]])
    notes.append(f"Placements that differ only in the order of their nodes count as one; seed {seed}.")
    nothing = test.take(np.zeros(len(test), dtype=np.bool_))
    for part in range(folds):
        fit_on = whole.take(of_whole != part)
        of_part = of_test == part
        kinds = sorted(set(zip(test.cluster[of_part].tolist(), test.model[of_part].tolist(), strict=True)))
        for cluster, model in kinds:
            index = np.flatnonzero(of_part & (test.cluster == cluster) & (test.model == model))
            yield Split(train=fit_on, points=nothing, others=nothing, index=index, name=model, key=f"part {part}")


def fold_of(shapes: Sequence[str], folds: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Assign each row to a fold at random, rows of equal shape to the same; `(n_rows,)`."""
    distinct, index = np.unique(np.array(shapes), return_inverse=True)
    dealt = generator.permutation(len(distinct)) % folds
    return np.asarray(dealt[index], dtype=np.int64)


def _judge(test: StepTimes, splits: Sequence[Split], seed: int) -> tuple[JudgedRows | None, float, float]:
    """Return the forecasts of all splits, None if no row is left, and the seconds for fitting and for forecasting."""
    parts: list[JudgedRows] = []
    fitted: dict[str, ThroughputForecaster] = {}
    fit_s = predict_s = 0.0
    for split in splits:
        judged = test.take(split.index)
        base = rows_known(judged, split.points, split.train)
        fresh = ~np.isin(_fingerprints(judged), _fingerprints(base))
        rows = judged.take(fresh)
        if not len(rows):
            continue
        started = time.perf_counter()
        if split.key not in fitted:
            fitted[split.key] = ThroughputForecaster.from_bundle(bundled(fit_measured(split.train, seed=seed)))
        between = time.perf_counter()
        forecast = _steps(fitted[split.key], split, rows, base.take(_nearest(rows, base, _BATCH_WEIGHT)))
        fit_s, predict_s = fit_s + between - started, predict_s + time.perf_counter() - between
        by_baseline = baselines(rows, base, split.train)
        parts.append(JudgedRows(index=split.index[fresh], forecast=forecast, by_baseline=by_baseline))
    return together(parts) if parts else None, fit_s, predict_s


def _steps(model: ThroughputForecaster, split: Split, rows: StepTimes, base: StepTimes) -> Intervals:
    """Return the step times of rows, in seconds, as the speeds relative to `base` that are served give them."""
    cluster = str(rows.cluster[0])
    parts = [(split.name or "the job", split.points), ("another", split.others)]
    points = SitePoints(
        family=np.array([name_key(name) for name, known in parts for _ in range(len(known))], dtype=np.str_),
        work=work_of(_joined(split.points, split.others)),
        step_s=np.concatenate([known.step_s for _, known in parts]),
    )
    served = model.at_site(cluster if cluster in model.knowledge.clusters else None, points)
    name = split.name or ("the job" if len(split.points) else None)
    ratio = served.relative(*(_table(each, served.codes([name] * len(rows))) for each in (rows, base)))
    step_s = base.step_s * (rows.gpus * rows.batch) / (base.gpus * base.batch)
    return Intervals(low=step_s / ratio.high, median=step_s / ratio.median, high=step_s / ratio.low, known=ratio.known)


def _table(rows: StepTimes, codes: NDArray[np.int64]) -> PlacementTable:
    return PlacementTable(
        profile=codes, gpus=rows.gpus, nodes=rows.nodes, local_batch=rows.batch, least=rows.least, most=rows.most
    )


def _score(name: str, rows: StepTimes, judged: JudgedRows, wanted: Mask, baseline: str | None, is_rate: bool) -> Score:
    """Score the wanted ones of the judged rows together; `baseline` None is the forecast itself."""
    own, forecast = rows.take(wanted), judged.forecast
    said = (forecast.median if baseline is None else judged.by_baseline[baseline])[wanted]
    ratio = said / own.step_s
    errors = 100.0 * np.abs((1.0 / ratio if is_rate else ratio) - 1.0)
    further = {"mean of models": float(np.mean([errors[own.model == model].mean() for model in np.unique(own.model)]))}
    further |= _rankings(own, said)
    if baseline is not None:
        return score(name, "%", errors, further=further)
    inside = (forecast.low[wanted] <= own.step_s) & (own.step_s <= forecast.high[wanted])
    known = forecast.known[wanted]
    if known.any():
        further["unflagged covered"] = float(np.mean(inside[known]))
    return score(name, "%", errors, inside=inside, known=known, further=further)


def _rankings(rows: StepTimes, forecast: Vector) -> dict[str, float]:
    """Return the mean of Kendall's tau over models and batches, of placements by speed and by step time."""
    cells: dict[tuple[str, str, float], list[tuple[float, float, float]]] = {}
    for row in range(len(rows)):
        cell = (str(rows.cluster[row]), str(rows.model[row]), float(rows.batch_asked[row]))
        samples = float(rows.gpus[row] * rows.batch[row])
        cells.setdefault(cell, []).append((samples, float(rows.step_s[row]), float(forecast[row])))
    by_speed = [tau for cell in cells.values() if (tau := _tau(cell, by_speed=True)) is not None]
    by_step = [tau for cell in cells.values() if (tau := _tau(cell, by_speed=False)) is not None]
    if not by_speed:
        return {}
    return {"tau": float(np.mean(by_speed)), "tau of the step": float(np.mean(by_step)) if by_step else 0.0}


def _tau(cell: Sequence[tuple[float, float, float]], *, by_speed: bool) -> float | None:
    """Return Kendall's tau-b of one cell; None where the truth has fewer than three placements or ranks none."""
    samples, true, forecast = np.array(cell).T
    tops = samples if by_speed else np.ones(len(cell))
    # Rounding must not rank what is equal.
    truth, answer = (np.round(np.log(tops / steps), 9) for steps in (true, forecast))
    if len(cell) < 3 or not np.ptp(truth):
        return None
    # One answer for all placements ranks nothing.
    return float(kendalltau(truth, answer).statistic) if np.ptp(answer) else 0.0


def _fingerprints(rows: StepTimes) -> list[str]:
    return [
        f"{name_key(model)} {shape} {batch!r} {step!r}"
        for model, shape, batch, step in zip(
            rows.model.tolist(), rows.shapes(), rows.batch.tolist(), rows.step_s.tolist(), strict=True
        )
    ]


def _joined(one: StepTimes, other: StepTimes) -> StepTimes:
    columns = {name: np.concatenate([getattr(one, name), getattr(other, name)]) for name in StepTimes.__slots__}
    return StepTimes(**columns)


def matching(text: str, columns: Mapping[str, Vector]) -> Mask:
    """Return which rows match comparisons joined by `and`; raises `ConfigError` for what is none."""
    rows = np.ones(len(next(iter(columns.values()))), dtype=np.bool_)
    for part in text.lower().split(" and "):
        comparison = _COMPARISON.fullmatch(part.strip())
        if comparison is None or comparison[1] not in columns:
            raise ConfigError(
                f"--profile {text!r} is not understood: write as nodes==1 and gpus<=8, with the names "
                f"{', '.join(columns)}"
            )
        rows &= COMPARISONS[comparison[2]](columns[comparison[1]], float(comparison[3]))
    return rows


def baselines(judged: StepTimes, known: StepTimes, train: StepTimes) -> Mapping[str, Vector]:
    """Return step times, seconds, `(n_rows,)` by baseline, for rows of one model on one cluster.

    `known` are the rows of the job, or of its model, or where there are none of all models; `train` those of others.
    """
    nearest = _nearest(judged, known, _BATCH_WEIGHT)
    base = known.take(nearest)
    samples = judged.batch / base.batch
    linear = base.step_s * samples
    return {
        LINEAR: linear,
        ROOT: linear * (judged.gpus / base.gpus) ** (1.0 - _ALMOST),
        CURVE: base.step_s * np.exp(_curve(judged, base, train)),
        NEAREST: base.step_s,
    }


def rows_known(judged: StepTimes, points: StepTimes, train: StepTimes) -> StepTimes:
    """Return the rows to start from: those of the job, else of its model on this cluster, or its smallest."""
    is_model = np.array([name_key(name) == name_key(judged.model[0]) for name in train.model.tolist()], dtype=np.bool_)
    trained = train.take(is_model & (train.cluster == judged.cluster[0]))
    fewest = judged.take(judged.gpus == judged.gpus.min())
    return next(rows for rows in (points, trained, fewest) if len(rows))


def _nearest(judged: StepTimes, known: StepTimes, batch_weight: float) -> NDArray[np.int64]:
    """Return the index of the known row nearest to each judged one; the first of those equally near."""
    found = np.empty(len(judged), dtype=np.int64)
    places = _places(known, batch_weight)
    for start in range(0, len(judged), 500):
        part = slice(start, start + 500)
        away = np.abs(_places(judged, batch_weight)[part, None, :] - places[None, :, :]).sum(axis=2)
        found[part] = np.argmin(away, axis=1)
    return found


def _places(rows: StepTimes, batch_weight: float) -> Vector:
    return np.column_stack(
        [
            np.log2(rows.gpus),
            np.log2(rows.nodes),
            0.25 * np.log2(rows.most / rows.least),
            batch_weight * np.log2(rows.batch),
        ]
    )


def _curve(judged: StepTimes, base: StepTimes, train: StepTimes) -> Vector:
    """Return by how much the log step of the other models changes from `base` to `judged`, at their nearest batch."""
    names = sorted(set(zip(train.cluster.tolist(), train.model.tolist(), strict=True)))
    here = [each for each in names if each[0] == judged.cluster[0]] or names
    changes = []
    for cluster, model in here:
        own = train.take((train.cluster == cluster) & (train.model == model))
        if name_key(model) == name_key(judged.model[0]) and len(here) > 1:
            continue
        middle = np.log2(own.batch)
        # A model's own batches stand in for those of the job: the smallest for the smallest.
        shifted = 2.0 ** (np.log2(judged.batch) - np.log2(base.batch).min() + middle.min())
        shifted_base = 2.0 ** (np.log2(base.batch) - np.log2(base.batch).min() + middle.min())
        there = own.take(_nearest(_at(judged, shifted), own, 0.5))
        start = own.take(_nearest(_at(base, shifted_base), own, 0.5))
        changes.append(np.log(there.step_s) - np.log(start.step_s))
    return np.mean(changes, axis=0) if changes else np.log(judged.batch / base.batch)


def _at(rows: StepTimes, batch: Vector) -> StepTimes:
    columns = {name: getattr(rows, name) for name in StepTimes.__slots__} | {"batch": batch}
    return StepTimes(**columns)
