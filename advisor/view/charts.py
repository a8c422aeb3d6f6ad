"""Charts as SVG: distributions over a logarithmic axis of time, steps over time, and points with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S
from advisor.view.markup import COLOURS, DASHES, element

WIDTH, HEIGHT = 760, 320
LEFT, RIGHT, TOP, BOTTOM = 76, 28, 14, 46
LEAST_S = 1.0
_CDF_POINTS = 401
_MOST_TICKS = 8

Floats = NDArray[np.float64]


class Tick(NamedTuple):
    """A mark of an axis."""

    value: float
    label: str


# What a logarithmic axis of time is marked with.
_DURATIONS = (
    Tick(1, "1 s"),
    Tick(10, "10 s"),
    Tick(MINUTE_S, "1 min"),
    Tick(10 * MINUTE_S, "10 min"),
    Tick(HOUR_S, "1 h"),
    Tick(10 * HOUR_S, "10 h"),
    Tick(4 * DAY_S, "4 d"),
    Tick(40 * DAY_S, "40 d"),
    Tick(400 * DAY_S, "400 d"),
    Tick(4000 * DAY_S, "4000 d"),
    Tick(1e12, "32,000 y"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis from its first tick to its last."""

    label: str
    ticks: tuple[Tick, ...]
    is_log: bool = False

    def share(self, values: Floats) -> Floats:
        """Return where values stand on the axis, 0 at its low end and 1 at its high end."""
        low, high = self.ticks[0].value, self.ticks[-1].value
        inside = np.clip(values, low, high)
        if self.is_log:
            return np.asarray(np.log(inside / low) / np.log(high / low))
        return np.asarray((inside - low) / (high - low))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A named line `(n_points,)`; with `is_step`, `y[i]` holds until `x[i + 1]` and `x` is one longer."""

    name: str
    x: Floats
    y: Floats
    is_step: bool = False


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
    """Named points; with `is_joined`, a line leads from each to the next."""

    name: str
    marks: tuple[Mark, ...]
    is_joined: bool = False


def distribution(name: str, values: Floats) -> Line:
    """Return the share of values at or below each duration, in percent; what is below 1 s is drawn at 1 s."""
    shares = np.linspace(0.0, 1.0, min(_CDF_POINTS, max(2, len(values))))
    quantiles = np.quantile(values, shares) if len(values) else np.array([LEAST_S, LEAST_S])
    return Line(name=name, x=np.maximum(quantiles, LEAST_S), y=100 * shares)


def duration_axis(label: str, lines: Sequence[Line]) -> Axis:
    """Return a logarithmic axis of durations that holds all lines."""
    low = min(float(line.x[0]) for line in lines)
    high = max(float(line.x[-1]) for line in lines)
    first = max(index for index, tick in enumerate(_DURATIONS[:-1]) if tick.value <= max(low, LEAST_S))
    last = min((index for index, tick in enumerate(_DURATIONS) if tick.value >= high), default=len(_DURATIONS) - 1)
    return Axis(label=label, ticks=_DURATIONS[first : max(last, first + 1) + 1], is_log=True)


def time_axis(span_s: float) -> Axis:
    """Return an axis of the time since the first submit, in a unit that fits."""
    unit_s, name = next(
        (pair for pair in ((MINUTE_S, "minutes"), (HOUR_S, "hours")) if span_s <= 96 * pair[0]), (DAY_S, "days")
    )
    ticks = tuple(Tick(value * unit_s, f"{value:g}") for value in round_steps(span_s / unit_s))
    return Axis(label=f"{name} since the first submit", ticks=ticks)


def count_axis(label: str, high: float) -> Axis:
    """Return an axis from 0 to at least `high`."""
    return Axis(label=label, ticks=tuple(Tick(value, f"{value:,.10g}") for value in round_steps(high)))


def change_axis(label: str, low: float, high: float) -> Axis:
    """Return an axis of changes in percent that holds 0, `low` and `high`."""
    steps = round_steps(max(-low, high))
    step = steps[1]
    first, last = int(np.floor(min(low, 0.0) / step)), int(np.ceil(max(high, 0.0) / step))
    values = [index * step for index in range(first, max(last, first + 1) + 1)]
    return Axis(label=label, ticks=tuple(Tick(value, f"{value:+.10g} %" if value else "0 %") for value in values))


def percent_axis(label: str) -> Axis:
    """Return an axis from 0 to 100 percent."""
    return Axis(label=label, ticks=tuple(Tick(value, f"{value} %") for value in (0, 25, 50, 75, 100)))


def round_steps(high: float) -> list[float]:
    """Return 0 and multiples of 1, 2 or 5 times a power of ten, the last at or above `high`."""
    high = high if high > 0 else 1.0
    power = float(10.0 ** np.floor(np.log10(high / _MOST_TICKS)))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if high <= power * factor * _MOST_TICKS)
    return [round(step * index, 10) for index in range(int(np.ceil(high / step - 1e-9)) + 1)]


def line_chart(
    *,
    ident: str,
    title: str,
    description: str,
    x_axis: Axis,
    y_axis: Axis,
    lines: Sequence[Line],
    limit: float | None = None,
) -> Element:
    """Draw lines as a figure with a legend; `ident` is unique on the page, `limit` a value of the y axis to mark."""
    parts = []
    if limit is not None:
        y = _number(_y(y_axis, np.array([limit]))[0])
        parts.append(element("path", d=f"M{LEFT} {y}H{WIDTH - RIGHT}", class_="limit"))
    for index, line in enumerate(lines):
        parts.append(element("path", d=_path(line, x_axis, y_axis), class_=_classes(index)))
    parts = [*_grid(x_axis, y_axis), *parts]
    return _figure(ident, title, description, parts, [line.name for line in lines])


def point_chart(
    *, ident: str, title: str, description: str, x_axis: Axis, y_axis: Axis, series: Sequence[Series]
) -> Element:
    """Draw points with their intervals as a figure with a legend; `ident` is unique on the page."""
    parts = _grid(x_axis, y_axis)
    for index, one in enumerate(series):
        xs = _x(x_axis, np.array([mark.x for mark in one.marks]))
        ys = _y(y_axis, np.array([mark.y for mark in one.marks]))
        if one.is_joined and len(one.marks) > 1:
            corners = "L".join(f"{_number(x)} {_number(y)}" for x, y in zip(xs, ys, strict=True))
            parts.append(element("path", d=f"M{corners}", class_=_classes(index)))
        for mark, x, y in zip(one.marks, xs, ys, strict=True):
            parts += _drawn(mark, float(x), float(y), x_axis, f"line c{index % COLOURS}")
    return _figure(ident, title, description, parts, [one.name for one in series])


def _drawn(mark: Mark, x: float, y: float, x_axis: Axis, classes: str) -> list[Element]:
    """Draw a point, its interval and its label."""
    parts = []
    if np.isfinite(mark.low + mark.high):
        low, high = _x(x_axis, np.array([mark.low, mark.high]))
        parts.append(element("path", d=f"M{_number(low)} {_number(y)}H{_number(high)}", class_=classes))
    circle = element("circle", element("title", mark.name), cx=_number(x), cy=_number(y), r="4", class_=classes)
    return [*parts, circle, element("text", mark.label, x=_number(x + 5), y=_number(y - 6))]


def _figure(ident: str, title: str, description: str, parts: Sequence[Element], names: Sequence[str]) -> Element:
    """Return a drawing with its title, its description and a legend of the names of its lines."""
    drawing = element(
        "svg",
        element("title", title, id=f"{ident}-title"),
        element("desc", description, id=f"{ident}-desc"),
        *parts,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=str(WIDTH),
        height=str(HEIGHT),
        role="img",
        aria_labelledby=f"{ident}-title {ident}-desc",
    )
    return element("figure", element("figcaption", title), drawing, _legend(names))


def _grid(x_axis: Axis, y_axis: Axis) -> list[Element]:
    """Draw the lines and labels of the ticks, and what the axes mean."""
    parts = []
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for tick, x in zip(x_axis.ticks, _x(x_axis, _values(x_axis)), strict=True):
        parts += [
            element("path", d=f"M{_number(x)} {TOP}V{bottom}", class_="grid"),
            element("text", tick.label, x=_number(x), y=str(bottom + 16), text_anchor="middle"),
        ]
    for tick, y in zip(y_axis.ticks, _y(y_axis, _values(y_axis)), strict=True):
        parts += [
            element("path", d=f"M{LEFT} {_number(y)}H{right}", class_="grid"),
            element("text", tick.label, x=str(LEFT - 6), y=_number(y + 4), text_anchor="end"),
        ]
    middle = (TOP + bottom) // 2
    turned = f"rotate(-90 12 {middle})"
    return [
        *parts,
        element("text", x_axis.label, x=str((LEFT + right) // 2), y=str(HEIGHT - 8), text_anchor="middle"),
        element("text", y_axis.label, x="12", y=str(middle), text_anchor="middle", transform=turned),
    ]


def _legend(names: Sequence[str]) -> Element:
    return element(
        "ul",
        *(
            element(
                "li",
                element(
                    "svg",
                    element("path", d="M0 6H34", class_=_classes(index)),
                    width="34",
                    height="12",
                    aria_hidden="true",
                ),
                name,
            )
            for index, name in enumerate(names)
        ),
        class_="legend",
    )


def _path(line: Line, x_axis: Axis, y_axis: Axis) -> str:
    """Spell a line; points that fall on the last one are left out."""
    xs = [_number(x) for x in _x(x_axis, line.x)]
    ys = [_number(y) for y in _y(y_axis, line.y)]
    if not ys:
        return ""
    parts = [f"M{xs[0]} {ys[0]}"]
    if line.is_step:
        for index, y in enumerate(ys):
            if index and y != ys[index - 1]:
                parts.append(f"H{xs[index]}V{y}")
        return "".join([*parts, f"H{xs[-1]}"])
    points = list(zip(xs, ys, strict=True))
    parts += [f"L{x} {y}" for (x, y), before in zip(points[1:], points, strict=False) if (x, y) != before]
    return "".join(parts)


def _classes(index: int) -> str:
    return f"line c{index % COLOURS} d{index % DASHES}"


def _values(axis: Axis) -> Floats:
    return np.array([tick.value for tick in axis.ticks], dtype=np.float64)


def _x(axis: Axis, values: Floats) -> Floats:
    return np.asarray(LEFT + axis.share(values) * (WIDTH - LEFT - RIGHT))


def _y(axis: Axis, values: Floats) -> Floats:
    return np.asarray(HEIGHT - BOTTOM - axis.share(values) * (HEIGHT - TOP - BOTTOM))


def _number(value: float) -> str:
    """Spell a coordinate to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")
