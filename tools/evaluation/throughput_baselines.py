"""What step times are without a model: scaled from the nearest point that is known."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from advisor.fit.throughput_data import StepTimes
from advisor.predict.interference_items import name_key

Vector = NDArray[np.float64]

LINEAR, ROOT, CURVE, NEAREST = (
    "linear from the nearest known point",
    "GPUs**0.9 from the nearest known point",
    "mean curve of the training models",
    "nearest known placement",
)
_ALMOST = 0.9
# So many octaves of the batch count as much as one octave of the GPUs.
_BATCH_WEIGHT = 2.0


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
