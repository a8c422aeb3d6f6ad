"""Tabulates the errors of the job profiles against the measurements."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.sim.profiles import Profiles, gpu_share_inflation, inflation
from tools.data.profile_data import Beside, MeasuredSpread, MeasuredStep, Measurements, Speed
from tools.pages.page_text import table
from tools.profile_fit import (
    CONTENTION_FROM,
    PAIRS_FROM,
    SPREADS_FROM,
    STEPS_FROM,
    Pair,
    fit_contention,
    fit_pairs,
    fit_spreads,
    fit_steps,
    folds,
    spread_rows,
    spreads_at,
    step_rows,
    steps_at,
    without_batch,
)

Vector = NDArray[np.float64]
Row = TypeVar("Row")
BY_MODEL = f"{PAIRS_FROM}, batch size unknown"
HALVED, BY_PAIR = f"{CONTENTION_FROM}, NIC halved", f"{CONTENTION_FROM}, by pair"

TITLES = {
    "ElasticFlow": "step, 1-64 A100",
    "Pollux one node": "step, 1-4 T4",
    "Shockwave V100": "step, 1-8 V100",
    "Rubick one node": "step, 1-8 A800",
    "Rubick nodes": "step, 16-64 A800",
    "Pollux nodes": "inflation, 2-4 nodes of T4",
    "Rubick": "inflation, 2-8 nodes of A800, as many GPUs on each",
    "Rubick uneven": "the same, not as many GPUs on each",
    "Rubick ZeRO": "the same, with sharded optimizer states",
    "Chronus": "inflation, 2-4 nodes",
    "Gavel V100": "inflation, 2-8 servers with one V100",
    "DeepShare nodes": "inflation, 4 nodes over 2",
    "Gavel types": "K80 over V100",
    "Zeus types": "P100, A40 over V100",
    "NVIDIA types": "A100 over V100",
    "Pollux T4 over Zeus V100": "T4 over V100",
    "Gavel pairs": "two jobs on one GPU: V100, for two models K80",
    BY_MODEL: "the same by model alone",
    "Gavel K80 pairs": "two jobs on one K80",
    "Gavel odd pairs": "two jobs on one V100, speeds alone doubtful",
    "DeepShare beside": "two gangs on the same NICs",
    HALVED: "the same, fitted with the NIC split evenly",
    BY_PAIR: "the same, the median of each pair of models: no formula by model does better",
}
# Errors of these are differences of relative speeds; of all others, percentages of the time or speed.
IN_SPEED = tuple(title for title in TITLES if "pairs" in title or "beside" in title)


class ErrorGroup(NamedTuple):
    """The key that errors are grouped by."""

    source: str
    model: str
    is_fitted: bool


Errors = defaultdict[ErrorGroup, list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLine:
    """The errors of one model, or of all (`model` empty), against one data set; `unseen` with rows left out."""

    source: str
    model: str
    is_fitted: bool
    rows: int
    mean: float
    median: float
    most: float
    unseen: float | None


class Shipped:
    """Predictions of the shipped functions with the shipped numbers."""

    def __init__(self, profiles: Profiles) -> None:
        self.profiles = profiles

    def row(self, name: str) -> np.void:
        """Return the profile of a name as the data sets write it, with or without a batch size."""
        key = name if name in self.profiles.names else name.partition("/")[0]
        profile: np.void = self.profiles.rows[self.profiles.names.index(key)]
        return profile

    def type_speed(self, model: str) -> dict[str, float]:
        """Return the speeds of a model by GPU type."""
        speeds = self.profiles.type_speed[self.profiles.names.index(model)]
        return dict(zip(self.profiles.gpu_types, map(float, speeds), strict=True))

    def step(self, row: MeasuredStep) -> float:
        """Return a step time over that at its base: the formula of `step_s` for any batch size."""
        profile = self.row(row.model)
        return float(steps_at(np.array([profile["serial_ratio"], profile["sync_ratio"]]), [row])[0])

    def spread(self, row: MeasuredSpread) -> float:
        """Return the inflation of a placement."""
        pace = row.pace * self.type_speed(row.model)[row.gpu_type]
        here, best = row.gbps / pace, row.best_gbps / pace
        return inflation(self.row(row.model), row.gpus, row.nodes, here, row.best_nodes, best)

    def speed(self, row: Speed) -> float:
        """Return the speed on a GPU type."""
        return self.type_speed(row.model)[row.gpu_type]

    def shared(self, row: Beside) -> float:
        """Return the relative speed on a shared GPU."""
        return 1.0 / gpu_share_inflation(self.row(row.mine), self.row(row.other))

    def contended(self, row: Beside) -> float:
        """Return the relative speed on a contended NIC."""
        return 1.0 / node_inflation(self.row(row.mine), self.row(row.other))


def error_lines(profiles: Profiles, measured: Measurements) -> list[ErrorLine]:
    """Return the errors of a table of profiles by data set and model, led by the overall line of each data set."""
    table = Shipped(profiles)
    errors: Errors = defaultdict(list)
    for step in measured.steps:
        group = ErrorGroup(step.source, step.model, STEPS_FROM.get(step.model) == step.source)
        errors[group].append(abs(table.step(step) / step.ratio - 1.0))
    for spread in measured.spreads:
        group = ErrorGroup(spread.source, spread.model, SPREADS_FROM.get(spread.model) == spread.source)
        errors[group].append(abs(table.spread(spread) / spread.ratio - 1.0))
    for row in measured.speeds:
        errors[ErrorGroup(row.source, row.model, True)].append(abs(table.speed(row) / row.speed - 1.0))
    pairs = [row for row in measured.pairs if row.source == PAIRS_FROM]
    by_model = [replace(row, source=BY_MODEL) for row in without_batch(pairs)]
    for pair in (*measured.pairs, *by_model):
        group = ErrorGroup(pair.source, pair.mine.partition("/")[0], pair.source in (PAIRS_FROM, BY_MODEL))
        errors[group].append(abs(table.shared(pair) - pair.speed))
    for source, beside, speed in _contended(table, measured.contention):
        errors[ErrorGroup(source, beside.mine, True)].append(abs(speed - beside.speed))
    return _lines(errors, _unseen(table, measured))


def _contended(table: Shipped, rows: Sequence[Beside]) -> Iterator[tuple[str, Beside, float]]:
    """Yield speeds on contended NICs by the table, and for comparison by an even split and by pair."""
    halved = fit_contention(rows, is_split_evenly=True)
    by_pair: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        by_pair[row.mine, row.other].append(row.speed)
    for row in rows:
        yield row.source, row, table.contended(row)
        yield HALVED, row, 1.0 / (1.0 + halved[row.mine][0])
        yield BY_PAIR, row, median(by_pair[row.mine, row.other])


def markdown(lines: Sequence[ErrorLine]) -> str:
    """Return the tables of errors by data set and by model."""
    figures = ("rows:", "mean:", "median:", "most:", "rows left out:")
    overall = (_cells(line, TITLES[line.source]) for line in lines if not line.model)
    by_model = (_cells(line, line.model) for line in lines if line.model)
    return "\n\n".join(
        [
            table(("data set", "what", "fitted", *figures), overall),
            table(("data set", "model", "fitted", *figures), by_model) + "\n",
        ]
    )


def _cells(line: ErrorLine, what: str) -> list[str]:
    unit = ".3f" if line.source in IN_SPEED else ".1%"
    errors = (line.mean, line.median, line.most, line.unseen)
    shown = ("" if error is None else format(error, unit) for error in errors)
    return [line.source, what, "yes" if line.is_fitted else "no", str(line.rows), *shown]


def _lines(errors: Errors, unseen: Errors) -> list[ErrorLine]:
    lines = []
    for source, is_fitted in dict.fromkeys((group.source, group.is_fitted) for group in errors):
        models = [group.model for group in sorted(errors) if (group.source, group.is_fitted) == (source, is_fitted)]
        for model, parts in {"": models, **{model: [model] for model in models}}.items():
            groups = [ErrorGroup(source, part, is_fitted) for part in parts]
            of_all = np.concatenate([errors[group] for group in groups])
            left_out = [error for group in groups for error in unseen[group]]
            line = ErrorLine(
                source=source,
                model=model,
                is_fitted=is_fitted,
                rows=len(of_all),
                mean=float(of_all.mean()),
                median=float(np.median(of_all)),
                most=float(of_all.max()),
                unseen=float(np.mean(left_out)) if left_out else None,
            )
            lines.append(line)
    return lines


def _unseen(table: Shipped, measured: Measurements) -> Errors:
    """Return the errors on rows held out of the fit, a fifth at a time."""
    errors: Errors = defaultdict(list)
    for model, source in STEPS_FROM.items():
        for kept, steps in _parts(step_rows(model, measured.steps)):
            ratios = steps_at(fit_steps(kept), steps) / np.array([row.ratio for row in steps])
            errors[ErrorGroup(source, model, True)] += np.abs(ratios - 1.0).tolist()
    for model, source in SPREADS_FROM.items():
        type_speed = table.type_speed(model)
        for known, spreads in _parts(spread_rows(model, measured.spreads)):
            inflations = spreads_at(fit_spreads(known, type_speed), spreads, type_speed)
            ratios = inflations / np.array([row.ratio for row in spreads])
            errors[ErrorGroup(source, model, True)] += np.abs(ratios - 1.0).tolist()
    pairs = [row for row in measured.pairs if row.source == PAIRS_FROM]
    for source, rows in ((PAIRS_FROM, pairs), (BY_MODEL, without_batch(pairs))):
        for row, speed in _left_out(rows, fit_pairs, lambda need, pressure: 1.0 / max(1.0, need + pressure)):
            errors[ErrorGroup(source, row.mine.partition("/")[0], True)].append(abs(speed - row.speed))
    contended = _left_out(measured.contention, fit_contention, lambda mine, other: 1.0 / (1.0 + mine * other))
    for row, speed in contended:
        errors[ErrorGroup(CONTENTION_FROM, row.mine, True)].append(abs(speed - row.speed))
    return errors


def _left_out(
    rows: Sequence[Beside], fit: Callable[[Sequence[Beside]], dict[str, Pair]], speed: Callable[[float, float], float]
) -> Iterator[tuple[Beside, float]]:
    """Yield the held-out rows whose jobs the fit knows, with the speeds that it predicts."""
    for kept, left_out in _parts(rows):
        known = fit(kept)
        for row in left_out:
            if row.mine in known and row.other in known:
                yield row, speed(known[row.mine][0], known[row.other][1])


def _parts(rows: Sequence[Row]) -> Iterator[tuple[list[Row], list[Row]]]:
    for mask in folds(len(rows)):
        yield (
            [row for row, is_left_out in zip(rows, mask, strict=True) if not is_left_out],
            [row for row, is_left_out in zip(rows, mask, strict=True) if is_left_out],
        )


def node_inflation(mine: np.void, other: np.void) -> float:
    """Return the run time of a gang over several nodes beside another such gang on a 10 Gb/s NIC, over that alone.

    It expresses the division of a NIC by pressure as run time. A job within one node sends nothing and is not slowed.
    """
    return float(1.0 + mine["node_sensitivity"] * other["node_pressure"])
