"""Searches for the similarity of jobs that predicts the speeds of held-out pairs best."""

from collections.abc import Callable
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.predict.interference_items import Floats, Items, JobPairs, Rows, Shape, name_key, similarity

# The most rows that the search uses; the fit uses all of them.
SEARCHED_ROWS = 700
FIRST_FACTOR, ROUNDS = 4.0, 2
LEAST_GAIN = 1e-4
# The weight of an error for a held-out model, where one for a held-out pair weighs 1.
UNSEEN_WEIGHT = 0.25
# With a larger weight an unseen model would have nothing in common with the others.
MOST_OWN_WEIGHT = 16.0
OUTLIER, STEADYING = 0.03, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Variances of the relative speed: by the slowed job, by the other, by both together, and noise."""

    mine: float = 0.03
    other: float = 0.03
    both: float = 0.02
    noise: float = 0.003


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The similarities and weights with the least error in the search."""

    mine: Shape
    other: Shape
    weights: Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """The predictions for each row `(n_rows,)` with its pair held out, and with its models held out.

    For the latter a row appears once for each of its models; `rows` says which row it is.
    """

    by_pair: Floats
    by_model: Floats
    rows: Rows


def search(pairs: JobPairs, speed: Floats, pair: Rows, generator: np.random.Generator) -> Chosen:
    """Return the similarity with the least mean error on held-out rows, changing one number at a time."""
    rows = _searched(pair, generator)
    few = pairs.take(rows)
    best = Chosen(mine=Shape(), other=Shape(), weights=Weights())
    # The weights are fixed before the search: recomputed in it, they would hide its own errors.
    weight = steadied(few, speed[rows], pair[rows], best)
    known = speed[rows], pair[rows], weight
    value = _loss(few, *known, best)
    factor = FIRST_FACTOR
    for _ in range(ROUNDS):
        for change in _changes():
            for ratio in (factor, 1.0 / factor):
                while (reached := _loss(few, *known, trial := change(best, ratio))) < value - LEAST_GAIN:
                    best, value = trial, reached
        factor = factor**0.5
    return best


def _searched(pair: Rows, generator: np.random.Generator) -> Rows:
    """Return the rows of a random choice of pairs, about `SEARCHED_ROWS` of them."""
    if len(pair) <= SEARCHED_ROWS:
        return np.arange(len(pair))
    order = generator.permutation(int(pair.max()) + 1)
    rank = order[pair]
    limit = np.sort(rank)[SEARCHED_ROWS]
    return np.flatnonzero(rank < max(1, limit))


def _changes() -> list[Callable[[Chosen, float], Chosen]]:
    """Return functions that multiply one number of the similarity by a ratio."""

    def of_weight(name: str) -> Callable[[Chosen, float], Chosen]:
        return lambda chosen, ratio: replace(
            chosen,
            weights=replace(chosen.weights, **{name: np.clip(getattr(chosen.weights, name) * ratio, 1e-5, 10.0)}),
        )

    def of_shape(name: str) -> Callable[[Chosen, float], Chosen]:
        def changed(chosen: Chosen, ratio: float) -> Chosen:
            most = MOST_OWN_WEIGHT if name == "own_weight" else 1e3
            value = float(np.clip(getattr(chosen.mine, name) * ratio, 1e-3, most))
            return replace(
                chosen, mine=replace(chosen.mine, **{name: value}), other=replace(chosen.other, **{name: value})
            )

        return changed

    return [
        *(of_weight(field.name) for field in fields(Weights)),
        *(of_shape(field.name) for field in fields(Shape)),
    ]


def covariance(pairs: JobPairs, chosen: Chosen) -> Floats:
    """Return the covariance of pairs, `(n_rows, n_rows)`: the weighted sum of both similarities and their product."""
    mine = similarity(pairs.items, pairs.items, chosen.mine)[np.ix_(pairs.mine, pairs.mine)]
    other = similarity(pairs.items, pairs.items, chosen.other)[np.ix_(pairs.other, pairs.other)]
    weights = chosen.weights
    return weights.mine * mine + weights.other * other + weights.both * mine * other


def left_out(pairs: JobPairs, speed: Floats, pair: Rows, chosen: Chosen, weight: Floats | float = 1.0) -> LeftOut:
    """Return the predictions for held-out rows, in closed form; `weight` `(n_rows,)` are the weights of the rows."""
    inverse, mean = _solved(covariance(pairs, chosen), speed, chosen.weights.noise, weight)
    solved: Floats = inverse @ (speed - mean)
    by_pair = speed - _block_residuals(inverse, solved, pair)
    blocks = [rows for rows in _rows_by_model(pairs) if len(rows) < len(pairs)]
    rows = np.concatenate(blocks) if blocks else np.zeros(0, np.intp)
    gaps = [np.linalg.solve(inverse[np.ix_(block, block)], solved[block]) for block in blocks]
    by_model = speed[rows] - (np.concatenate(gaps) if gaps else np.zeros(0))
    return LeftOut(by_pair=by_pair, by_model=by_model, rows=rows)


def pairs_left_out(columns: Floats, speed: Floats, pair: Rows, noise: float, weight: Floats) -> Floats:
    """Return the predictions `(n_rows,)` of a ridge regression on `columns` for rows whose pair is held out.

    Leaving a block of rows out of a ridge regression changes their residuals from `(inv(K) y)` to
    `solve(inv(K)[block, block], (inv(K) y)[block])`: Rasmussen and Williams, Gaussian Processes, 5.4.2.
    """
    inverse, mean = _solved(columns @ columns.T, speed, noise, weight)
    return speed - _block_residuals(inverse, inverse @ (speed - mean), pair)


def _solved(gram: Floats, speed: Floats, noise: float, weight: Floats | float) -> tuple[Floats, float]:
    """Return the inverse of a covariance with noise, and the weighted mean of the speeds."""
    gram[np.diag_indices_from(gram)] += noise / weight
    mean = float(np.average(speed, weights=np.broadcast_to(weight, speed.shape)))
    return np.asarray(np.linalg.inv(gram), dtype=np.float64), mean


def _block_residuals(inverse: Floats, solved: Floats, pair: Rows) -> Floats:
    residuals = solved / np.diag(inverse)
    order = np.argsort(pair, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(pair[order]) > 0, True])
    for start, end in pairwise(starts.tolist()):
        if end - start > 1:
            block = order[start:end]
            residuals[block] = np.linalg.solve(inverse[np.ix_(block, block)], solved[block])
    return residuals


def _rows_by_model(pairs: JobPairs) -> list[Rows]:
    names = np.array([name_key(name) for name in pairs.items.model])
    mine, other = names[pairs.mine], names[pairs.other]
    present = sorted(set(mine.tolist()) | set(other.tolist()))
    return [np.flatnonzero((mine == name) | (other == name)) for name in present]


def _loss(pairs: JobPairs, speed: Floats, pair: Rows, weight: Floats, chosen: Chosen) -> float:
    try:
        errors = left_out(pairs, speed, pair, chosen, weight)
    except np.linalg.LinAlgError:
        return float("inf")
    top = float(speed.max())
    error = _mean_error(errors.by_pair, speed, top)
    if len(errors.rows):
        error += UNSEEN_WEIGHT * _mean_error(errors.by_model, speed[errors.rows], top)
    return error


def _mean_error(predicted: Floats, speed: Floats, top: float) -> float:
    return float(np.mean(np.abs(np.clip(predicted, 0.0, top) - speed)))


def steadied(pairs: JobPairs, speed: Floats, pair: Rows, chosen: Chosen) -> Floats:
    """Return weights that reduce the influence of outliers.

    An error above `OUTLIER` counts linearly, not squared: least absolute errors by iteratively reweighted least
    squares.
    """
    weight = np.ones(len(pairs))
    for _ in range(STEADYING):
        held_out = left_out(pairs, speed, pair, chosen, weight)
        weight = 1.0 / np.maximum(1.0, np.abs(speed - held_out.by_pair) / OUTLIER)
    return weight


def basis(items: Items, shape: Shape, limit: int) -> Floats:
    """Return the matrix from similarities to `items` to coordinates, `(n_items, n_coordinates)`, up to `limit` of them.

    Products of `similarity(x, items) @ basis` approximate `similarity`: Williams and Seeger's use of Nystroem's method.
    """
    values, vectors = np.linalg.eigh(similarity(items, items, shape))
    order = np.argsort(-values, kind="stable")[:limit]
    order = order[values[order] > 1e-6 * values.max()]
    scaled: Floats = vectors[:, order] / np.sqrt(values[order])
    return scaled
