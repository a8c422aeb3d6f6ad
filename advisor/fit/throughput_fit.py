"""Fits the throughput predictor: scaling laws for each measured model, and a graph for the ratios of speeds."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.errors import TraceError
from advisor.features.columns import Columns
from advisor.fit.fitted import Fitted, Regressor, Source
from advisor.fit.throughput_data import StepTimes, files_of, read_step_times, sources_of
from advisor.fit.throughput_population import Group, Learned, learn_laws
from advisor.predict.interference_items import name_key
from advisor.predict.scaling import SCALE, Vector, log_step, reference_batch, taught
from advisor.predict.throughput import COLUMNS, KIND, OUTPUTS, columns_of
from advisor.predict.throughput_knowledge import UNTRAINED, Calibration, Knowledge, Population, write_knowledge
from advisor.predict.throughput_site import Evidence

LEAST_ROWS = 30
_PAIRS_PER_GROUP, _DRAWS = 1500, 15
_PROBE_ROWS = 500
# The mean log of the absolute value of a standard normal deviate, which turns mean log errors into log deviations.
_LOG_SIZE = -0.6352
_LEAST_ERROR = 0.01
# The weight of the quantiles before, in models: the tails of a handful of models are largely chance.
_MODELS_BEFORE = 1.0
_KNOWN = {"nothing known": Evidence.NONE, "one node known": Evidence.ONE_NODE, "a spread point known": Evidence.SPREAD}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPairs(Columns):
    """Pairs of placements of one job: columns of the graph `(n_pairs, n_columns)`, and errors of the law."""

    rows: NDArray[np.float32]
    left_over: Vector
    model: NDArray[np.str_]
    cluster: NDArray[np.str_]


def fit_throughput(files: Sequence[Path], *, seed: int) -> Fitted:
    """Fit to files or folders of step times; raises `TraceError`."""
    read = files_of(files)
    measured = read_step_times(read)
    return fit_measured(measured, seed=seed, sources=sources_of(read, measured))


def fit_measured(measured: StepTimes, *, seed: int, sources: tuple[Source, ...] = ()) -> Fitted:
    """Fit to step times; raises `TraceError` if they are too few."""
    models = sorted(set(measured.model.tolist()))
    if len(measured) < LEAST_ROWS or len(models) < 2:
        raise TraceError(
            f"{len(measured)} rows of {len(models)} models are too few to fit on: give {LEAST_ROWS} rows of 2 or more"
        )
    generator = np.random.default_rng(seed)
    learned = learn_laws(measured)
    pairs = _pairs(measured, learned, generator)
    off = _stated(pairs)
    knowledge = _with_ratios(learned.knowledge(), pairs, off)
    errors = 100.0 * np.abs(np.expm1(-pairs.left_over))
    across = pairs.rows[:, COLUMNS.index("size_spread")] > 0.0
    return Fitted(
        kind=KIND,
        columns=COLUMNS,
        outputs=OUTPUTS,
        regressors=(_regressor(pairs),),
        parameters=write_knowledge(knowledge),
        probe=pairs.rows[generator.permutation(len(pairs.rows))[:_PROBE_ROWS]],
        sources=sources,
        metrics={
            **{
                f"ratio of speeds, {where}, {known}, mean error (%), model left out": float(np.mean(errors[rows]))
                for where, is_there in (
                    ("within a node or between spread placements", ~across),
                    ("across nodes", across),
                )
                for known, evidence in _KNOWN.items()
                if (rows := is_there & (pairs.rows[:, COLUMNS.index("evidence")] == evidence)).any()
            },
            "ratio of speeds, share inside the interval, model left out": _covered(knowledge, pairs, off),
        },
        seed=seed,
        text=(
            "How much faster or slower a job trains on another number of GPUs and nodes. Laws of scaling for the "
            f"{len(models)} measured models, a common one for the rest. On a network that is none of those measured, a "
            "placement over several nodes counts as not known until a job of the same model was seen spread out there. "
            "Tiers beyond the node were not measured: all placements on as many nodes get the same answer. Of the "
            "link's bandwidth nothing was learned either."
        ),
        settings={"pairs of placements for each model": str(_PAIRS_PER_GROUP)},
    )


def _pairs(measured: StepTimes, learned: Learned, generator: np.random.Generator) -> PlacementPairs:
    """Draw pairs of placements of each model, with the law that other models and a few of its points give.

    A third each has no point, a few on one node, and a few on one node with one spread out.
    """
    rows, left_over, models, clusters = [], [], [], []
    for group in learned.groups:
        own = measured.take((measured.model == group.model) & (measured.cluster == group.cluster))
        others = learned.without(group.model) or UNTRAINED
        population = others.clusters.get(group.cluster, others.pooled)
        samples = np.log(own.gpus * own.batch) - np.log(own.step_s)
        for draw in range(_DRAWS):
            evidence = Evidence(draw % len(Evidence))
            theta, reference = _law_from(group, population, _points(own, evidence, generator))
            first, second = _drawn(own.batch_asked, generator, _PAIRS_PER_GROUP // _DRAWS)
            # A batch that is not stated counts as equal per GPU, so that pairs of different batches have to state it.
            is_stated = (generator.random(len(first)) < 0.5) | (own.batch[first] != own.batch[second])
            # The unit of a batch is the reference of the points, or without any the batch of the second placement.
            unit = group.work.batch[second] if reference is None else np.full(len(first), reference)
            asked, base = (
                replace(group.work.take(at), batch=np.where(is_stated, group.work.batch[at] / unit, 1.0))
                for at in (first, second)
            )
            by_law = log_step(theta, base) - log_step(theta, asked) + np.log(asked.gpus * asked.batch)
            by_law -= np.log(base.gpus * base.batch)
            rows.append(columns_of(by_law, np.full(len(first), int(evidence)), asked, base))
            left_over.append(samples[first] - samples[second] - by_law)
            models += [group.model] * len(first)
            clusters += [group.cluster] * len(first)
    return PlacementPairs(
        rows=np.vstack(rows), left_over=np.concatenate(left_over), model=np.array(models, dtype=np.str_),
        cluster=np.array(clusters, dtype=np.str_),
    )  # fmt: skip


def _points(own: StepTimes, evidence: Evidence, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw the rows that are known of a job: 2 to 32 on one node, and one spread out."""
    alone, spread = (generator.permutation(np.flatnonzero(mask)) for mask in (own.nodes == 1, own.nodes > 1))
    few = alone[: 2 ** generator.integers(1, 6)]
    return {Evidence.NONE: alone[:0], Evidence.ONE_NODE: few, Evidence.SPREAD: np.append(few, spread[:1])}[evidence]


def _law_from(group: Group, population: Population, rows: NDArray[np.int64]) -> tuple[Vector, float | None]:
    """Return a law after some points of a model, and the batch that it counts in; None where there is no point."""
    theta, reference = population.prior().mean.copy(), None
    if len(rows):
        work = group.work.take(rows)
        reference = reference_batch(work)
        theta = taught(population.prior(), work, group.step_s[rows], reference).theta.copy()
    theta[SCALE] = 0.0
    return theta, reference


def _drawn(batch: Vector, generator: np.random.Generator, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw pairs of different rows with the same batch."""
    first = generator.integers(0, len(batch), count)
    order = np.argsort(batch, kind="stable")
    starts = np.searchsorted(batch[order], batch[first], side="left")
    ends = np.searchsorted(batch[order], batch[first], side="right")
    second = order[starts + (generator.random(len(first)) * (ends - starts)).astype(np.int64)]
    return first[first != second], second[first != second]


def _regressor(pairs: PlacementPairs) -> Regressor:
    """Fit the log of the errors of the law, in float32.

    Corrections of the law itself were tried: with models held out in turn, none had smaller errors than no correction.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    size = np.log(np.maximum(np.abs(pairs.left_over), _LEAST_ERROR)) - _LOG_SIZE
    deviation = HistGradientBoostingRegressor(
        max_iter=20, max_leaf_nodes=8, min_samples_leaf=100, early_stopping=False, random_state=0
    )
    return deviation.fit(pairs.rows, size.astype(np.float32))


def _stated(pairs: PlacementPairs) -> Vector:
    """Return the errors in stated deviations, `(n_pairs,)`, each model left out of the graph in turn."""
    keys = np.array([name_key(name) for name in pairs.model])
    off = np.empty(len(keys))
    for key in np.unique(keys):
        own = keys == key
        off[own] = pairs.left_over[own] / np.exp(_regressor(pairs.take(~own)).predict(pairs.rows[own]))
    return off


def _with_ratios(knowledge: Knowledge, pairs: PlacementPairs, off: Vector) -> Knowledge:
    """Return the knowledge, with intervals calibrated on each network, and on all together for one not measured."""

    def of(rows: NDArray[np.bool_], before: Calibration) -> Calibration:
        return calibrate([off[rows & (pairs.model == model)] for model in np.unique(pairs.model[rows])], before)

    anywhere = of(np.ones(len(off), dtype=np.bool_), Calibration())
    clusters = {
        name: population.model_copy(update={"ratios": of(pairs.cluster == name, anywhere)})
        for name, population in knowledge.clusters.items()
    }
    pooled = knowledge.pooled.model_copy(update={"ratios": anywhere})
    return knowledge.model_copy(update={"pooled": pooled, "clusters": clusters})


def _covered(knowledge: Knowledge, pairs: PlacementPairs, off: Vector) -> float:
    tails = {name: population.ratios for name, population in knowledge.clusters.items()}
    low, high = (np.array([getattr(tails[name], end) for name in pairs.cluster.tolist()]) for end in ("low", "high"))
    return float(np.mean((off >= low) & (off <= high)))


def calibrate(off_by_model: Sequence[Vector], before: Calibration) -> Calibration:
    """Return the 10 % and 90 % quantiles of errors in stated deviations, with equal weight for each model's array.

    The fewer the models, the nearer they stay to those of `before`.
    """
    kept = [errors for errors in off_by_model if len(errors)]
    if not kept:
        return before
    off = np.concatenate(kept)
    weights = np.concatenate([np.full(len(errors), 1.0 / len(errors)) for errors in kept])
    ends = np.quantile(off, (0.1, 0.9), weights=weights, method="inverted_cdf")
    share = len(kept) / (len(kept) + _MODELS_BEFORE)
    low, high = share * ends + (1.0 - share) * np.array([before.low, before.high])
    return Calibration(low=float(np.clip(low, -20.0, 0.0)), high=float(np.clip(high, 0.0, 20.0)))
