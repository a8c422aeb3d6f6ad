"""Fits the numbers of job profiles by a direct search for the least mean error, without randomness."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from advisor.sim.profiles import MOST_NODES
from tools.data.profile_data import SOCKET_GBPS, Beside, MeasuredSpread, MeasuredStep

Vector = NDArray[np.float64]

FIRST_STEP, LAST_STEP = 0.5, 2.0**-12
LEAST_GAIN = 1e-8
MOST_SLANTED = 3
# Smaller errors count by their squares: the corners of a sum of absolute values would stop the search.
ROUND_BELOW = 0.01
# A gang that waits more than 19 parts in 20 cannot be distinguished from one that only waits.
MOST_SENSITIVE = 0.95
MOST_TRAFFIC_GBPS = 2000.0
# With fewer rows than this a spread exponent and an overlap would fit the noise.
LEAST_ROWS = 4
# The gang that `node_sensitivity` is stated for.
USUAL_GPUS, USUAL_NODES = 4, 2

# The data set that each model is fitted to. Its measurements in other data sets check the fit.
STEPS_FROM = {
    "bert": "ElasticFlow", "gpt2": "ElasticFlow", "inception3": "ElasticFlow", "resnet50": "ElasticFlow",
    "vgg16": "ElasticFlow", "cifar10": "Pollux one node", "deepspeech2": "Pollux one node", "ncf": "Pollux one node",
    "yolov3": "Pollux one node", "lm": "Shockwave V100", "resnet18": "Shockwave V100", "transformer": "Shockwave V100",
    "roberta": "Rubick one node", "vit": "Rubick one node", "llama7": "Rubick nodes", "llama30": "Rubick nodes",
}  # fmt: skip
SPREADS_FROM = {
    "bert": "Pollux nodes", "cifar10": "Pollux nodes", "ncf": "Pollux nodes", "resnet50": "Pollux nodes",
    "yolov3": "Pollux nodes", "gpt2": "Rubick", "llama7": "Rubick", "roberta": "Rubick", "vit": "Rubick",
    "alexnet": "Chronus", "inception3": "Chronus", "mobilenetv2": "Chronus", "resnet101": "Chronus",
    "vgg16": "Chronus", "lm": "Gavel V100", "resnet18": "Gavel V100", "transformer": "Gavel V100",
    "dlrm": "DeepShare nodes", "fsdp": "DeepShare nodes", "graphsage": "DeepShare nodes",
    "mobilenetv3": "DeepShare nodes", "transformerxl": "DeepShare nodes",
}  # fmt: skip
# Two rows, both on numbers of nodes that do not divide its plans: it takes the network of the smaller model.
NETWORK_LIKE = {"llama30": "llama7"}
PAIRS_FROM, CONTENTION_FROM = "Gavel pairs", "DeepShare beside"


def search(
    loss: Callable[[Vector], float], start: Sequence[float], low: Sequence[float], high: Sequence[float]
) -> Vector:
    """Return the parameters of the least loss near `start`, by steps along fixed directions, halved when none helps.

    A step that helps is repeated with twice the length. The directions are the axes and, for few parameters, all
    diagonals, because the valleys of a sum of absolute values run diagonally.
    """
    least, most = np.array(low, np.float64), np.array(high, np.float64)
    best = np.clip(np.array(start, np.float64), least, most)
    value = loss(best)
    ways = _ways(len(best))
    step = FIRST_STEP
    while step >= LAST_STEP:
        before = value
        for way in ways:
            reach = step
            while (reached := loss(trial := np.clip(best + reach * way, least, most))) < value - LEAST_GAIN:
                best, value = trial, reached
                reach *= 2.0
        if value == before:
            step /= 2.0
    return best


def _ways(count: int) -> list[Vector]:
    """Return the directions to try, each with its opposite."""
    if count <= MOST_SLANTED:
        signs = [way for way in product((1.0, -1.0, 0.0), repeat=count) if any(way)]
        # Valleys can run flatter than a diagonal.
        return [np.array(way) * scale for way in signs for scale in _scales(way)]
    return [sign * axis for axis in np.eye(count) for sign in (1.0, -1.0)]


def _scales(way: Sequence[float]) -> list[Vector]:
    if np.count_nonzero(way) < 2:
        return [np.ones(len(way))]
    return [np.ones(len(way)), *(np.where(np.arange(len(way)) == axis, 0.25, 1.0) for axis in range(len(way)))]


def mean_error(errors: Vector) -> float:
    """Return the mean of absolute errors, smoothed near zero."""
    return float(np.sqrt(errors * errors + ROUND_BELOW**2).mean())


def steps_at(numbers: Vector, rows: Sequence[MeasuredStep]) -> Vector:
    """Return the step times of a model, `(serial_ratio, sync_ratio)`, over those at the base of each row."""
    return _step_model(rows)(numbers)


def _step_model(rows: Sequence[MeasuredStep]) -> Callable[[Vector], Vector]:
    gpus, share, base_gpus, base_share = np.array(
        [(row.gpus, row.share, row.base_gpus, row.base_share) for row in rows], np.float64
    ).T
    doublings, base_doublings = np.log2(gpus), np.log2(base_gpus)

    def ratios(numbers: Vector) -> Vector:
        """Return the step times over those at the base."""
        serial, sync = numbers
        here = serial + (1.0 - serial) * share + sync * doublings
        base = serial + (1.0 - serial) * base_share + sync * base_doublings
        return np.asarray(here / base)

    return ratios


def fit_steps(rows: Sequence[MeasuredStep]) -> Vector:
    """Return `(serial_ratio, sync_ratio)`."""
    measured = np.array([row.ratio for row in rows])
    ratios = _step_model(rows)
    # With two sizes beyond the first, the data give the slope of the curve but not its curvature.
    most_sync = 1.0 if len(rows) >= LEAST_ROWS else 0.0

    def loss(numbers: Vector) -> float:
        """Return the mean error."""
        return mean_error(ratios(numbers) / measured - 1.0)

    starts = ((0.0, 0.0), (0.2, 0.05))
    return min((search(loss, start, (0.0, 0.0), (1.0, most_sync)) for start in starts), key=loss)


def spreads_at(numbers: Vector, rows: Sequence[MeasuredSpread], type_speed: Mapping[str, float]) -> Vector:
    """Return the inflation of a model, `(traffic_gbps, spread_exponent, overlap_ratio)`, for each row."""
    return _spread_model(rows, type_speed)(numbers)


def _spread_model(rows: Sequence[MeasuredSpread], type_speed: Mapping[str, float]) -> Callable[[Vector], Vector]:
    here = _slowed([row.nodes for row in rows], [row.gbps for row in rows], rows, type_speed)
    best = _slowed([row.best_nodes for row in rows], [row.best_gbps for row in rows], rows, type_speed)
    return lambda numbers: np.maximum(1.0, here(numbers) / best(numbers))


def _slowed(
    nodes: Sequence[int], gbps: Sequence[float], rows: Sequence[MeasuredSpread], type_speed: Mapping[str, float]
) -> Callable[[Vector], Vector]:
    """Return a function to one plus the exposed communication on `nodes` nodes with links of `gbps`."""
    spread = np.array(nodes, np.float64)
    gpus = np.array([row.gpus for row in rows], np.float64)
    pace = np.array([row.pace * type_speed[row.gpu_type] for row in rows])
    # A gang on one node has no communication.
    volume = np.where(spread > 1, 2.0 * (gpus - 1.0) / gpus * pace / np.maximum(np.array(gbps), 1e-9), 0.0)
    growth = np.log2(np.clip(spread, 2.0, MOST_NODES)) - 1.0

    def slowed(numbers: Vector) -> Vector:
        """Return one plus the exposed communication."""
        return np.asarray(1.0 + np.maximum(0.0, numbers[0] * 2.0 ** (growth * numbers[1]) * volume - numbers[2]))

    return slowed


def fit_spreads(
    rows: Sequence[MeasuredSpread], type_speed: Mapping[str, float], traffic_gbps: float | None = None
) -> Vector:
    """Return `(traffic_gbps, spread_exponent, overlap_ratio)`; a given traffic is kept, with an overlap of 0."""
    measured = np.array([row.ratio for row in rows])
    inflation = _spread_model(rows, type_speed)
    few = len(rows) < LEAST_ROWS
    if traffic_gbps is not None:
        bounds = ((np.log2(traffic_gbps), -2.0, 0.0), (np.log2(traffic_gbps), 3.0, 0.0))
    else:
        bounds = ((-6.0, 0.0 if few else -2.0, 0.0), (np.log2(MOST_TRAFFIC_GBPS), *((0.0, 0.0) if few else (3.0, 1.0))))

    def loss(logged: Vector) -> float:
        """Return the mean error; the traffic is searched for by its logarithm."""
        return mean_error(inflation(_traffic_from_log(logged)) / measured - 1.0)

    starts = product((0.0, 3.0, 6.0), (0.0,), (0.0, 0.5))
    return _traffic_from_log(min((search(loss, start, *bounds) for start in starts), key=loss))


def _traffic_from_log(logged: Vector) -> Vector:
    return np.array([2.0 ** logged[0], *logged[1:]])


Pair = tuple[float, float]


def fit_pairs(rows: Sequence[Beside]) -> dict[str, Pair]:
    """Return `(gpu_need, gpu_pressure)` by name; a constant moved from all needs to all pressures changes nothing."""
    names, mine, other, measured = _sides(rows)

    def loss(numbers: Vector) -> float:
        """Return the mean error of the relative speeds."""
        need, pressure = numbers[: len(names)], numbers[len(names) :]
        return mean_error(1.0 / np.maximum(1.0, need[mine] + pressure[other]) - measured)

    size = 2 * len(names)
    best = search(loss, [0.8] * size, [0.0] * size, [4.0] * size)
    need, pressure = best[: len(names)], best[len(names) :]
    shift = (need.mean() - pressure.mean()) / 2.0
    return {name: (float(need[i] - shift), float(pressure[i] + shift)) for i, name in enumerate(names)}


def fit_contention(rows: Sequence[Beside], *, is_split_evenly: bool = False) -> dict[str, Pair]:
    """Return `(node_sensitivity, node_pressure)` by name; all pressures are 1 where gangs split a NIC evenly."""
    names, mine, other, measured = _sides(rows)

    def loss(numbers: Vector) -> float:
        """Return the mean error of the relative speeds."""
        sensitivity, pressure = numbers[: len(names)], numbers[len(names) :]
        return mean_error(1.0 / (1.0 + sensitivity[mine] * pressure[other]) - measured)

    count = len(names)
    least_pressure = 1.0 if is_split_evenly else 0.0
    low, high = [0.0] * count + [least_pressure] * count, [MOST_SENSITIVE] * count + [1.0] * count
    best = search(loss, [0.5] * 2 * count, low, high)
    # Only products are measured: scale them so that the gang with the most pressure takes an equal share of the NIC.
    scale = max(1e-9, float(best[count:].max()))
    return {
        name: (min(MOST_SENSITIVE, float(best[i]) * scale), float(best[count + i]) / scale)
        for i, name in enumerate(names)
    }


def _sides(rows: Sequence[Beside]) -> tuple[list[str], NDArray[np.intp], NDArray[np.intp], Vector]:
    names = sorted({row.mine for row in rows} | {row.other for row in rows})
    place = {name: i for i, name in enumerate(names)}
    mine = np.array([place[row.mine] for row in rows], np.intp)
    other = np.array([place[row.other] for row in rows], np.intp)
    return names, mine, other, np.array([row.speed for row in rows])


def fit_pressure_slope(contention: Mapping[str, Pair], rows: Sequence[Beside]) -> float:
    """Return the ratio of pressure to sensitivity, for models that were not measured beside others."""
    mine = np.array([contention[row.mine][0] for row in rows])
    other = np.array([contention[row.other][0] for row in rows])
    measured = np.array([row.speed for row in rows])
    slope = search(
        lambda numbers: mean_error(1.0 / (1.0 + mine * other * numbers[0]) - measured), (1.0,), (0.0,), (2.0,)
    )
    return float(slope[0])


def traffic_of_sensitivity(sensitivity: float) -> float:
    """Return the traffic, Gb/s, at which the usual gang waits for its socket this share of its run time."""
    volume = 2.0 * (USUAL_GPUS - 1) / USUAL_GPUS
    return max(sensitivity / (1.0 - sensitivity) * SOCKET_GBPS / volume, 2.0**-6)


def sensitivity_of_network(network: Vector) -> float:
    """Return the share of its run time that the usual gang waits for its socket, from the numbers of its network."""
    usual = MeasuredSpread(source="", model="", gpus=USUAL_GPUS, nodes=USUAL_NODES, gbps=SOCKET_GBPS, ratio=1.0)
    return 1.0 - 1.0 / float(spreads_at(network, [usual], {usual.gpu_type: 1.0})[0])


def spread_rows(model: str, spreads: Sequence[MeasuredSpread]) -> list[MeasuredSpread]:
    """Return the rows that the network of a model is fitted to."""
    return [row for row in spreads if row.model == model and row.source == SPREADS_FROM.get(model)]


def step_rows(model: str, steps: Sequence[MeasuredStep]) -> list[MeasuredStep]:
    """Return the rows that the step times of a model are fitted to."""
    return [row for row in steps if row.model == model and row.source == STEPS_FROM.get(model)]


def without_batch(rows: Sequence[Beside]) -> list[Beside]:
    """Return pairs without the batch sizes in their names."""
    return [replace(row, mine=row.mine.partition("/")[0], other=row.other.partition("/")[0]) for row in rows]


def folds(count: int) -> list[NDArray[np.bool_]]:
    """Return the masks of up to five interleaved folds; none if there are too few rows to leave some out."""
    ways = min(5, count)
    return [np.arange(count) % ways == fold for fold in range(ways)] if count > LEAST_ROWS else []
