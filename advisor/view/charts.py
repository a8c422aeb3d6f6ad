"""Charts as figures: a canvas that static/charts.js draws, and the same data as a table for those who see no canvas.

Names come from traces and users, so they are written as JSON that cannot end the element it stands in, and are drawn
as text only.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.units import duration
from advisor.text import escaped
from advisor.view.markup import Table, rendered

# A logarithmic axis of durations begins there.
LEAST_S: Final = 1.0
# A distribution is drawn at every half of a percent.
_SHARES: Final = 201
# Tables of lines have at most this many rows: every n-th point, and the last.
_MOST_ROWS: Final = 25

Floats = NDArray[np.float64]


class Unit(StrEnum):
    """How the values of an axis are spelled; static/charts.js knows the same names."""

    COUNT = "count"
    PERCENT = "percent"
    CHANGE = "change"
    DURATION = "duration"


class Hover(StrEnum):
    """What the pointer selects: the point of each line nearest to it along an axis, or the nearest point of all."""

    X = "x"
    Y = "y"
    POINT = "point"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis with its meaning; without `low` or `high` it ends where its data end."""

    label: str
    unit: Unit
    is_log: bool = False
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A named line `(n_points,)`; with `is_step`, `y[i]` holds until `x[i + 1]` and `x` is one longer."""

    name: str
    x: Floats
    y: Floats
    is_step: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A value of the y axis that is marked by a line."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point with a short label and a full name; `low` and `high` bound its interval along the x axis, if any."""

    label: str
    name: str
    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Named points."""

    name: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A named bar for each category, NaN where a category has none."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart with its title and description, its configuration for static/charts.js, and its data as a table."""

    ident: str
    title: str
    description: str
    config: Mapping[str, object]
    data: Table

    def __html__(self) -> str:
        """Return the figure as HTML, which templates do not escape again."""
        return rendered("figure.html", made=self)


def distribution(name: str, values: Floats) -> Line:
    """Return the duration that each share of values, in percent, does not exceed; what is below 1 s counts as 1 s."""
    shares = np.linspace(0.0, 1.0, _SHARES)
    quantiles = np.quantile(values, shares) if len(values) else np.full(_SHARES, LEAST_S)
    return Line(name=name, x=np.maximum(quantiles, LEAST_S), y=100 * shares)


def count_axis(label: str) -> Axis:
    """Return an axis of counts from 0."""
    return Axis(label=label, unit=Unit.COUNT, low=0.0)


def change_axis(label: str) -> Axis:
    """Return an axis of changes in percent."""
    return Axis(label=label, unit=Unit.CHANGE)


def percent_axis(label: str, high: float | None = 100.0) -> Axis:
    """Return an axis of shares from 0, to 100 percent by default."""
    return Axis(label=label, unit=Unit.PERCENT, low=0.0, high=high)


def line_chart(
    *,
    ident: str,
    title: str,
    description: str,
    x_axis: Axis,
    y_axis: Axis,
    lines: Sequence[Line],
    limit: Limit | None = None,
    hover: Hover = Hover.X,
) -> Figure:
    """Return a figure of lines; `ident` is unique on the page.

    With `Hover.Y`, all lines have the same `y`, and the table names its rows by it.
    """
    config = {
        "kind": "line",
        "hover": hover,
        "x": _axis_values(x_axis),
        "y": _axis_values(y_axis),
        "limit": None if limit is None else {"name": escaped(limit.name), "value": _rounded(limit.value)},
        "series": [
            {"name": escaped(line.name), "step": line.is_step, "x": _numbers(line.x), "y": _numbers(line.y)}
            for line in lines
        ],
    }
    data = _line_table(title, x_axis, y_axis, lines, hover)
    return Figure(ident=ident, title=title, description=description, config=config, data=data)


def point_chart(
    *, ident: str, title: str, description: str, x_axis: Axis, y_axis: Axis, series: Sequence[Series]
) -> Figure:
    """Return a figure of points with their intervals; `ident` is unique on the page."""
    config = {
        "kind": "points",
        "hover": Hover.POINT,
        "x": _axis_values(x_axis),
        "y": _axis_values(y_axis),
        "series": [{"name": escaped(one.name), "marks": [_mark_values(mark) for mark in one.marks]} for one in series],
    }
    rows = [
        [f"{mark.label}. {mark.name}", one.name, _with_interval(x_axis, mark), spelled(y_axis, mark.y)]
        for one in series
        for mark in one.marks
    ]
    data = Table(caption=f"{title}: data", header=["point", "kind", x_axis.label, y_axis.label], rows=rows)
    return Figure(ident=ident, title=title, description=description, config=config, data=data)


def bar_chart(
    *,
    ident: str,
    title: str,
    description: str,
    category_label: str,
    categories: Sequence[str],
    y_axis: Axis,
    bars: Sequence[Bars],
) -> Figure:
    """Return a figure of bars, one for each category and name; `ident` is unique on the page."""
    config = {
        "kind": "bars",
        "hover": Hover.X,
        "x": {"label": category_label, "categories": [escaped(category) for category in categories]},
        "y": _axis_values(y_axis),
        "series": [{"name": escaped(one.name), "y": [_rounded(value) for value in one.values]} for one in bars],
    }
    rows = [[category, *(spelled(y_axis, one.values[row]) for one in bars)] for row, category in enumerate(categories)]
    data = Table(caption=f"{title}: data", header=[category_label, *(one.name for one in bars)], rows=rows)
    return Figure(ident=ident, title=title, description=description, config=config, data=data)


def spelled(axis: Axis, value: float) -> str:
    """Return a value of an axis with its unit; empty if there is none."""
    return "" if math.isnan(value) else _SPELLINGS[axis.unit](value)


_SPELLINGS: Final[Mapping[Unit, Callable[[float], str]]] = {
    Unit.COUNT: lambda value: f"{round(value, 2):,.12g}",
    Unit.PERCENT: lambda value: f"{value:.3g} %",
    Unit.CHANGE: lambda value: f"{value:+.1f} %",
    Unit.DURATION: duration,
}


def _line_table(title: str, x_axis: Axis, y_axis: Axis, lines: Sequence[Line], hover: Hover) -> Table:
    """Return every n-th point of the lines: a row for each place on the axis that they share."""
    key, other = (y_axis, x_axis) if hover is Hover.Y else (x_axis, y_axis)
    pairs = [(line.y, line.x) if hover is Hover.Y else (line.x, line.y) for line in lines]
    columns = [
        {round(place, 6): value for place, value in zip(along.tolist(), across.tolist(), strict=False)}
        for along, across in pairs
    ]
    places = sorted({place for column in columns for place in column})
    step = max(1, math.ceil((len(places) - 1) / (_MOST_ROWS - 1)))
    kept = [*places[:-1:step], *places[-1:]]
    rows = [
        [spelled(key, place), *(spelled(other, column.get(place, math.nan)) for column in columns)] for place in kept
    ]
    note = f", one point of {step}" if step > 1 else ""
    caption = f"{title}: {other.label} by {key.label}{note}"
    return Table(caption=caption, header=[key.label, *(line.name for line in lines)], rows=rows)


def _with_interval(axis: Axis, mark: Mark) -> str:
    """Return the place of a point, with its interval if it has one."""
    text = spelled(axis, mark.x)
    if math.isnan(mark.low + mark.high):
        return text
    return f"{text} ({spelled(axis, mark.low)} to {spelled(axis, mark.high)})"


def _axis_values(axis: Axis) -> dict[str, object]:
    """Return an axis as static/charts.js reads it."""
    return {
        "label": escaped(axis.label),
        "unit": axis.unit,
        "log": axis.is_log,
        "low": axis.low,
        "high": axis.high,
    }


def _mark_values(mark: Mark) -> dict[str, object]:
    names = {"label": escaped(mark.label), "name": escaped(mark.name)}
    return {**names, **{field: _rounded(getattr(mark, field)) for field in ("x", "y", "low", "high")}}


def _numbers(values: Floats) -> list[float | None]:
    return [_rounded(value) for value in values.tolist()]


def _rounded(value: float) -> float | None:
    """Return a number to a thousandth, or to 6 digits if it is small; None for what is no number."""
    if not math.isfinite(value):
        return None
    rounded = round(value, 3) if abs(value) >= LEAST_S else float(f"{value:.6g}")
    return int(rounded) if rounded == int(rounded) else rounded
