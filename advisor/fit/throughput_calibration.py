"""Calibrates forecasts of step times by their errors on held-out placements and models."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from advisor.fit.throughput_data import StepTimes
from advisor.fit.throughput_population import Group, Learned, belief_of, learn_laws
from advisor.predict.intervals import Intervals
from advisor.predict.scaling import Vector, Work
from advisor.predict.throughput_adapt import NORMAL, JobForecaster, adapt, taught
from advisor.predict.throughput_knowledge import Calibration, Knowledge

FOLDS = 5
# The weight of the normal quantiles, in models: the tails of a handful of models are largely chance.
_MODELS_BEFORE = 1.0


def learn_knowledge(measured: StepTimes, seed: int) -> Knowledge:
    """Fit the laws of all models, calibrated on placements and models held out in turn."""
    learned = learn_laws(measured)
    generator = np.random.default_rng(seed)
    folds = [_left_out_placements(group, learned, generator) for group in learned.groups]
    one_node = [_left_out_model(group, learned, group.work.nodes == 1) for group in learned.groups]
    few = [_left_out_model(group, learned, _is_small(group.work)) for group in learned.groups]
    never = [_never_seen(group, learned) for group in learned.groups]
    return learned.knowledge().model_copy(
        update={
            "profiled": calibrate(folds),
            "adapted": calibrate(few),
            "one_node": calibrate(one_node),
            "unseen": calibrate(never),
        }
    )


def calibrate(off_by_model: Sequence[Vector]) -> Calibration:
    """Return the 10 % and 90 % quantiles of errors in stated deviations, with equal weight for each model's array."""
    kept = [errors for errors in off_by_model if len(errors)]
    if not kept:
        return Calibration()
    off = np.concatenate(kept)
    weights = np.concatenate([np.full(len(errors), 1.0 / len(errors)) for errors in kept])
    ends = np.quantile(off, (0.1, 0.9), weights=weights, method="inverted_cdf")
    share = len(kept) / (len(kept) + _MODELS_BEFORE)
    low, high = share * ends + (1.0 - share) * np.array([-NORMAL, NORMAL])
    return Calibration(low=float(np.clip(low, -20.0, 0.0)), high=float(np.clip(high, 0.0, 20.0)))


def fold_of(shapes: Sequence[str], folds: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Assign each row to a fold at random, rows of equal shape to the same; `(n_rows,)`."""
    distinct, index = np.unique(np.array(shapes), return_inverse=True)
    dealt = generator.permutation(len(distinct)) % folds
    return np.asarray(dealt[index], dtype=np.int64)


def _left_out_placements(group: Group, learned: Learned, generator: np.random.Generator) -> Vector:
    shapes = [f"{gpus}/{nodes}/{least}/{most}" for gpus, nodes, least, most in _counts(group.work)]
    fold = fold_of(shapes, FOLDS, generator)
    prior = learned.priors[group.cluster]
    off = []
    for number in range(FOLDS):
        kept, out = fold != number, fold == number
        if not kept.any() or not out.any():
            continue
        law, weights, noise = taught(
            belief_of(prior), group.work.take(kept), group.step_s[kept], group.reference, group.batch
        )
        job = JobForecaster(
            law=law, weights=weights, noise=noise, calibration=Calibration(), reference=group.reference,
            batch=group.batch, gpus=1.0, nodes=1.0, seen_gpus=float(group.work.gpus[kept].max()),
            seen_nodes=float(group.work.nodes[kept].max()), is_grounded=True,
        )  # fmt: skip
        off.append(_off(job.step_s(group.work.take(out)), group.step_s[out]))
    return np.concatenate(off) if off else np.zeros(0)


def _is_small(work: Work) -> NDArray[np.bool_]:
    return np.asarray(work.gpus <= 0.25 * work.gpus.max(), dtype=np.bool_)


def _left_out_model(group: Group, learned: Learned, known: NDArray[np.bool_]) -> Vector:
    """Return the errors on the other rows of a model, adapted from other models with its `known` rows `(n_rows,)`."""
    others = learned.without(group.model)
    if others is None or not known.any() or known.all():
        return np.zeros(0)
    job = adapt(others, group.work.take(known), group.step_s[known], model=None, cluster=group.cluster)
    return _off(_as_stated(job).step_s(group.work.take(~known)), group.step_s[~known])


def _never_seen(group: Group, learned: Learned) -> Vector:
    others = learned.without(group.model)
    if others is None:
        return np.zeros(0)
    nothing = group.work.take(np.zeros(len(group.work), dtype=np.bool_))
    job = _as_stated(adapt(others, nothing, np.zeros(0), model=None, cluster=group.cluster))
    return _off(job.step_s(group.work), group.step_s)


def _as_stated(job: JobForecaster) -> JobForecaster:
    return replace(job, calibration=Calibration())


def _off(intervals: Intervals, step_s: Vector) -> Vector:
    """Return errors of the log in stated deviations, those of the lower or upper side of each interval."""
    off = np.log(step_s) - np.log(intervals.median)
    down, up = np.log(intervals.median) - np.log(intervals.low), np.log(intervals.high) - np.log(intervals.median)
    return np.asarray(NORMAL * off / np.where(off < 0.0, down, up), dtype=np.float64)


def _counts(work: Work) -> Iterator[tuple[float, float, float, float]]:
    return zip(work.gpus.tolist(), work.nodes.tolist(), work.least.tolist(), work.most.tolist(), strict=True)
