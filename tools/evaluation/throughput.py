"""How far off forecasts of step times are, on placements and models that were not fitted on."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.stats import kendalltau

from advisor.errors import ConfigError
from advisor.fit.throughput_calibration import fold_of, learn_knowledge
from advisor.fit.throughput_data import GPUS_PER_NODE, StepTimes, files_of, read_measured
from advisor.fit.throughput_population import work_of
from advisor.predict.interference_items import name_key
from advisor.predict.intervals import Intervals
from advisor.predict.throughput_adapt import adapt
from advisor.predict.throughput_knowledge import UNTRAINED, Knowledge
from tools.evaluation.report import Report, Score, print_report, score
from tools.evaluation.served import ManyFiles

SEED = 20240601
FORMS = ("pollux", "elasticflow")
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
class Judged:
    """Rows of one model that were forecast, and what was said of them."""

    rows: StepTimes
    said: Intervals
    by_baseline: Mapping[str, Vector]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """What to fit on, which points of the job are known beside, and what to judge: all of one model."""

    train: StepTimes
    points: StepTimes
    judged: StepTimes
    key: str


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("throughput", cls=ManyFiles)(throughput)


def throughput(
    test: Annotated[list[Path], typer.Option("--test", help="Files, or folders of files, to be judged on.")],
    form: Annotated[str, typer.Option("--format", help=f"Form of the files: {', '.join(FORMS)}.")] = "pollux",
    train: Annotated[list[Path] | None, typer.Option("--train", help="Files, or folders of files, to fit on.")] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", help='Rows to be judged that are known, as "nodes==1 and gpus<=2".')
    ] = None,
    folds: Annotated[
        int | None, typer.Option("--folds", help="Number of parts of the placements; each is judged by the others.")
    ] = None,
    gpus_per_node: Annotated[
        int, typer.Option("--gpus-per-node", min=1, help="GPUs of a node, which elasticflow files do not state.")
    ] = GPUS_PER_NODE,
    seed: Annotated[int, typer.Option("--seed", help="Which placements fall into which part.")] = SEED,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge forecasts of step times; errors are percentages of the step time, with elasticflow of the iterations/s."""
    if form not in FORMS:
        raise ConfigError(f"--format {form}: there are {', '.join(FORMS)}")
    train_files, test_files = files_of(train or []), files_of(test)
    judge_on = read_measured(test_files, form, gpus_per_node)
    fit_on = read_measured(train_files, form, gpus_per_node)
    is_rate = form == "elasticflow"
    print_report(evaluate(fit_on, judge_on, profile=profile, folds=folds, seed=seed, is_rate=is_rate), as_json=json)


def evaluate(
    train: StepTimes,
    test: StepTimes,
    *,
    profile: str | None = None,
    folds: int | None = None,
    seed: int = SEED,
    is_rate: bool = False,
) -> Report:
    """Fit, forecast and compare; raises `ConfigError` where nothing is known, or nothing is left to judge.

    `is_rate` counts errors in iterations per second instead of seconds.
    """
    if folds is not None and (profile is not None or folds < 2):
        raise ConfigError(
            "--folds takes 2 or more, and excludes --profile: its parts are placements that are not known"
        )
    notes: list[str] = []
    splits = list(_parts(train, test, folds, seed, notes) if folds else _models(train, test, profile, notes))
    if not splits:
        raise ConfigError("no row is left to judge: every row of --test matches --profile")
    judged, fit_s, predict_s = _judge(splits, seed)
    if not judged:
        raise ConfigError("nothing is known of the models to judge: name files with --train, or points with --profile")
    ours = list(judged[0].by_baseline)
    scores = [_score("throughput", judged, None, is_rate)]
    scores += [_score(name, judged, name, is_rate) for name in ours]
    models = sorted({str(each.rows.model[0]) for each in judged})
    for model in models if len(models) > 1 else ():
        own = [each for each in judged if each.rows.model[0] == model]
        scores.append(_score(f"throughput: {model}", own, None, is_rate))
    return Report(
        what="throughput, error of the " + ("iterations per second" if is_rate else "step time"),
        train_rows=len(train),
        test_rows=sum(len(each.rows) for each in judged),
        fit_s=fit_s,
        predict_s=predict_s,
        scores=tuple(scores),
        notes=tuple(notes),
    )


def _models(train: StepTimes, test: StepTimes, profile: str | None, notes: list[str]) -> Iterator[Split]:
    """Split by model: it is left out of the training where any of its rows to judge stand there."""
    columns = {"nodes": test.nodes, "gpus": test.gpus, "batch": test.batch_asked, "local_bsz": test.batch_asked}
    columns |= {"local_batch": test.batch}
    known = np.zeros(len(test), dtype=np.bool_) if profile is None else matching(profile, columns)
    simple_train = np.array([name_key(name) for name in train.model.tolist()], dtype=np.str_)
    trained = set(_fingerprints(train))
    left_out = []
    for cluster, model in sorted(set(zip(test.cluster.tolist(), test.model.tolist(), strict=True))):
        own = (test.cluster == cluster) & (test.model == model)
        if known[own].all():
            continue
        judged, fit_on, key = test.take(own & ~known), train, ""
        if not trained.isdisjoint(_fingerprints(judged)):
            left_out.append(model)
            fit_on, key = train.take(simple_train != name_key(model)), name_key(model)
        yield Split(train=fit_on, points=test.take(own & known), judged=judged, key=key)
    if left_out:
        notes.append(
            f"Rows to judge stand in --train: {', '.join(dict.fromkeys(left_out))}, each left out of the training "
            "when its own rows were judged."
        )
    if profile is not None and not known.any():
        notes.append(f"No row of --test matches --profile {profile!r}.")


def _parts(train: StepTimes, test: StepTimes, folds: int, seed: int, notes: list[str]) -> Iterator[Split]:
    """Split by placement: no placement is both fitted on and judged, whatever its model and its batch."""
    shapes, among = train.shapes(), test.shapes()
    dealt = fold_of([*shapes, *among], folds, np.random.default_rng(seed))
    of_train, of_test = dealt[: len(train)], dealt[len(train) :]
    fresh = ~np.isin(np.array(_fingerprints(test)), np.array(_fingerprints(train), dtype=np.str_))
    whole = _joined(train, test.take(fresh))
    of_whole = np.concatenate([of_train, of_test[fresh]])
    notes.append(f"Placements that differ only in the order of their nodes count as one; seed {seed}.")
    for part in range(folds):
        fit_on = whole.take(of_whole != part)
        judged = test.take(of_test == part)
        nothing = judged.take(np.zeros(len(judged), dtype=np.bool_))
        for cluster, model in sorted(set(zip(judged.cluster.tolist(), judged.model.tolist(), strict=True))):
            own = (judged.cluster == cluster) & (judged.model == model)
            yield Split(train=fit_on, points=nothing, judged=judged.take(own), key=f"part {part}")


def _judge(splits: Sequence[Split], seed: int) -> tuple[list[Judged], float, float]:
    """Return what was said of each split that anything is known of, and the seconds for fitting and for forecasting."""
    judged: list[Judged] = []
    fitted: dict[str, Knowledge] = {}
    fit_s = predict_s = 0.0
    for split in splits:
        base = rows_known(split.judged, split.points, split.train)
        if not len(base):
            continue
        started = time.perf_counter()
        if split.key not in fitted:
            fitted[split.key] = learn_knowledge(split.train, seed) if len(split.train) else UNTRAINED
        between = time.perf_counter()
        model, cluster = str(split.judged.model[0]), str(split.judged.cluster[0])
        job = adapt(fitted[split.key], work_of(split.points), split.points.step_s, model=model, cluster=cluster)
        said = job.step_s(work_of(split.judged))
        fit_s, predict_s = fit_s + between - started, predict_s + time.perf_counter() - between
        judged.append(Judged(rows=split.judged, said=said, by_baseline=baselines(split.judged, base, split.train)))
    return judged, fit_s, predict_s


def _score(name: str, judged: Sequence[Judged], baseline: str | None, is_rate: bool) -> Score:
    """Score all rows together; `baseline` None is the forecast itself."""
    true = np.concatenate([each.rows.step_s for each in judged])
    said = [each.said.median if baseline is None else each.by_baseline[baseline] for each in judged]
    ratio = np.concatenate(said) / true
    errors = 100.0 * np.abs((1.0 / ratio if is_rate else ratio) - 1.0)
    models = np.concatenate([each.rows.model for each in judged])
    further = {"mean of models": float(np.mean([errors[models == model].mean() for model in np.unique(models)]))}
    further |= _rankings(judged, said)
    if baseline is not None:
        return score(name, "%", errors, further=further)
    low = np.concatenate([each.said.low for each in judged])
    high = np.concatenate([each.said.high for each in judged])
    known = np.concatenate([each.said.known for each in judged])
    return score(name, "%", errors, inside=(low <= true) & (true <= high), known=known, further=further)


def _rankings(judged: Sequence[Judged], said: Sequence[Vector]) -> dict[str, float]:
    """Return the mean of Kendall's tau over models and batches, of placements by speed and by step time."""
    cells: dict[tuple[str, str, float], list[tuple[float, float, float]]] = {}
    for each, steps in zip(judged, said, strict=True):
        rows = each.rows
        for row in range(len(rows)):
            cell = (str(rows.cluster[row]), str(rows.model[row]), float(rows.batch_asked[row]))
            samples = float(rows.gpus[row] * rows.batch[row])
            cells.setdefault(cell, []).append((samples, float(rows.step_s[row]), float(steps[row])))
    by_speed = [tau for cell in cells.values() if (tau := _tau(cell, by_speed=True)) is not None]
    by_step = [tau for cell in cells.values() if (tau := _tau(cell, by_speed=False)) is not None]
    if not by_speed:
        return {}
    return {"tau": float(np.mean(by_speed)), "tau of the step": float(np.mean(by_step)) if by_step else 0.0}


def _tau(cell: Sequence[tuple[float, float, float]], *, by_speed: bool) -> float | None:
    """Return Kendall's tau-b of one cell; None where the truth has fewer than three placements or ranks none."""
    samples, true, said = np.array(cell).T
    tops = samples if by_speed else np.ones(len(cell))
    # Rounding must not rank what is equal.
    truth, answer = (np.round(np.log(tops / steps), 9) for steps in (true, said))
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
    """Return the rows to start from: those of the job, else of its model on this cluster, of its model, or all."""
    is_model = np.array([name_key(name) == name_key(judged.model[0]) for name in train.model.tolist()], dtype=np.bool_)
    is_here = train.cluster == judged.cluster[0]
    for rows in (points, train.take(is_model & is_here), train.take(is_model), train.take(is_here), train):
        if len(rows):
            return rows
    return points


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
