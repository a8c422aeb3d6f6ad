"""Fits the throughput predictor: scaling laws for each measured model, and a graph for the ratios of speeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.errors import TraceError
from advisor.features.columns import Columns
from advisor.fit.fitted import Fitted
from advisor.fit.throughput_calibration import calibrate, learn_knowledge
from advisor.fit.throughput_data import StepTimes, files_of, read_measured, sources_of
from advisor.fit.throughput_population import Learned, learn_laws, work_of
from advisor.predict.interference_items import name_key
from advisor.predict.scaling import SCALE, Vector, Work, log_step
from advisor.predict.throughput import COLUMNS, KIND, OUTPUTS, columns_of
from advisor.predict.throughput_knowledge import Knowledge, live_laws, write_knowledge

LEAST_ROWS = 30
_PAIRS_PER_GROUP = 1500
_PROBE_ROWS = 500
# The mean log of the absolute value of a standard normal deviate, which turns mean log errors into log deviations.
_LOG_SIZE = -0.6352
_LEAST_ERROR = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPairs(Columns):
    """Pairs of placements of one job: columns of the graph `(n_pairs, n_columns)`, and errors of the law."""

    rows: NDArray[np.float32]
    left_over: Vector
    model: NDArray[np.str_]


def fit_throughput(files: Sequence[Path], *, form: str, seed: int) -> Fitted:
    """Fit to files or folders of step times; `form` is auto, pollux or elasticflow. Raises `TraceError`."""
    read = files_of(files)
    measured = read_measured(read, form)
    models = sorted(set(measured.model.tolist()))
    if len(measured) < LEAST_ROWS or len(models) < 2:
        raise TraceError(
            f"{len(measured)} rows of {len(models)} models are too few to fit on: give {LEAST_ROWS} rows of 2 or more"
        )
    generator = np.random.default_rng(seed)
    knowledge = learn_knowledge(measured, seed)
    pairs = _pairs(measured, learn_laws(measured), knowledge, generator)
    judged = [_judge(pairs, model) for model in models]
    tails = calibrate([off for off, _ in judged])
    regressors = _regressors(pairs)
    errors = np.concatenate([error for _, error in judged])
    inside = np.concatenate([(off >= tails.low) & (off <= tails.high) for off, _ in judged])
    return Fitted(
        kind=KIND,
        columns=COLUMNS,
        outputs=OUTPUTS,
        regressors=regressors,
        parameters=write_knowledge(knowledge.model_copy(update={"ratios": tails})),
        probe=pairs.rows[generator.permutation(len(pairs.rows))[:_PROBE_ROWS]],
        sources=sources_of(read, measured),
        metrics={
            "ratio of speeds, median error (%), model left out": float(np.median(errors)),
            "ratio of speeds, mean error (%), model left out": float(np.mean(errors)),
            "ratio of speeds, the law alone, median error (%)": float(np.median(_percent(pairs.left_over))),
            "ratio of speeds, share inside the interval, model left out": float(np.mean(inside)),
        },
        seed=seed,
        text=(
            "How much faster or slower a job trains on another number of GPUs and nodes. Laws of scaling for the "
            f"{len(models)} measured models, a common one for the rest; the network of a site is taken to be unknown, "
            "so the intervals for jobs on several nodes are wide. Tiers beyond the node were not measured: all "
            "placements on as many nodes get the same answer. Of the link's bandwidth nothing was learned either."
        ),
        settings={"pairs of placements for each model": str(_PAIRS_PER_GROUP)},
    )


def _pairs(
    measured: StepTimes, learned: Learned, knowledge: Knowledge, generator: np.random.Generator
) -> PlacementPairs:
    """Draw pairs of placements of each model, half with its own law, half with the law for unknown models."""
    rows, left_over, models = [], [], []
    for group in learned.groups:
        own = measured.take((measured.model == group.model) & (measured.cluster == group.cluster))
        first, second = _drawn(own.batch_asked, generator)
        work, log_steps = work_of(own), np.log(own.step_s)
        is_known = generator.random(len(first)) < 0.5
        # A batch that is not stated counts as equal per GPU, so that pairs of different batches have to state it.
        is_stated = (generator.random(len(first)) < 0.5) | (own.batch[first] != own.batch[second])
        thetas = np.where(is_known[:, None], *_laws_of(group.model, learned, knowledge))
        # The unit of a batch is the reference of the profile, or without a profile the batch of the second placement.
        unit = np.where(is_known, group.reference, work.batch[second])
        asked = _with_batch(work.take(first), np.where(is_stated, work.batch[first] / unit, 1.0))
        base = _with_batch(work.take(second), np.where(is_stated, work.batch[second] / unit, 1.0))
        by_law = log_step(thetas, base) - log_step(thetas, asked) + np.log(asked.gpus * asked.batch)
        by_law -= np.log(base.gpus * base.batch)
        samples = np.log(own.gpus * own.batch)
        true = (samples - log_steps)[first] - (samples - log_steps)[second]
        rows.append(columns_of(by_law, is_known, asked, base))
        left_over.append(true - by_law)
        models += [group.model] * len(first)
    return PlacementPairs(
        rows=np.vstack(rows), left_over=np.concatenate(left_over), model=np.array(models, dtype=np.str_)
    )


def _drawn(batch: Vector, generator: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw pairs of different rows with the same batch."""
    first = generator.integers(0, len(batch), _PAIRS_PER_GROUP)
    order = np.argsort(batch, kind="stable")
    starts = np.searchsorted(batch[order], batch[first], side="left")
    ends = np.searchsorted(batch[order], batch[first], side="right")
    second = order[starts + (generator.random(len(first)) * (ends - starts)).astype(np.int64)]
    return first[first != second], second[first != second]


def _laws_of(model: str, learned: Learned, knowledge: Knowledge) -> tuple[Vector, Vector]:
    """Return the law of a model as served if it is known, and the common law of the other models."""
    others = learned.without(model)
    common = learned.pooled.mean.copy() if others is None else np.array(others.pooled.mean)
    common[SCALE] = 0.0
    pooled = knowledge if others is None else knowledge.model_copy(update={"pooled": others.pooled})
    return live_laws(pooled, [model])[0], common


def _with_batch(work: Work, batch: Vector) -> Work:
    return Work(gpus=work.gpus, nodes=work.nodes, least=work.least, most=work.most, batch=batch)


def _regressors(pairs: PlacementPairs) -> tuple[Any, Any]:
    """Fit the errors of the law, and the log of the errors that remain, in float32.

    With models held out in turn, shallow trees had smaller errors than linear models, a small network and no
    correction.
    """
    from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

    correction = ExtraTreesRegressor(n_estimators=8, max_depth=5, min_samples_leaf=100, random_state=0)
    correction.fit(pairs.rows, pairs.left_over.astype(np.float32))
    rest = np.abs(pairs.left_over - correction.predict(pairs.rows))
    size = np.log(np.maximum(rest, _LEAST_ERROR)) - _LOG_SIZE
    deviation = HistGradientBoostingRegressor(
        max_iter=20, max_leaf_nodes=8, min_samples_leaf=100, early_stopping=False, random_state=0
    )
    return correction, deviation.fit(pairs.rows, size.astype(np.float32))


def _judge(pairs: PlacementPairs, model: str) -> tuple[Vector, Vector]:
    """Return the errors for a held-out model: in stated deviations, and in percent."""
    own = np.array([name_key(name) == name_key(model) for name in pairs.model])
    correction, deviation = _regressors(pairs.take(~own))
    out = pairs.take(own)
    left_over = out.left_over - correction.predict(out.rows)
    return left_over / np.exp(deviation.predict(out.rows)), _percent(left_over)


def _percent(left_over: Vector) -> Vector:
    return np.asarray(100.0 * np.abs(np.expm1(-left_over)), dtype=np.float64)
