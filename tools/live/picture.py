"""Draws what advice gained and cost on live clusters, trace by trace, beside what two plain clusters differ by.

The drawing has its own background, so that it reads on light pages and on dark ones.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from xml.etree.ElementTree import Element, tostring

from advisor.domain.units import plural
from advisor.text import escaped
from advisor.view.wording import signed
from tools.live.kept import Report
from tools.live.targets import advised, plain_clusters

_PANELS: Final = {"mean_jct_s": "mean job completion time", "p99_queueing_delay_s": "99th percentile of wait"}
_WIDTH, _LABELS, _PANEL, _NUMBERS, _GAP = 920, 130, 300, 66, 22
_TOP, _LINE, _PAD, _AXIS, _LEGEND = 62, 17, 12, 42, 24
# Intervals are cut off there, in percent.
_MOST: Final = 100.0
_STEPS: Final = (5.0, 10.0, 20.0, 50.0, 100.0)
_MOST_STEPS: Final = 6
_COLOURS: Final = 3
_STYLE: Final = """
text{font:13px system-ui,sans-serif;fill:#1b1b1b}.head{font-weight:600}.faint{fill:#5c5c5c}.end{text-anchor:end}
.middle{text-anchor:middle}.paper{fill:#fff;stroke:#d4d4d4}.grid{stroke:#e4e4e4}.zero{stroke:#1b1b1b}
.bar{stroke-width:2;fill:none}.c0{stroke:#0072b2;fill:#0072b2}.c1{stroke:#c04f00;fill:#c04f00}
.c2{stroke:#00785a;fill:#00785a}.plain{stroke:#767676;fill:#fff}
@media(prefers-color-scheme:dark){text{fill:#ececec}.faint{fill:#a8a8a8}.paper{fill:#16181c;stroke:#444}
.grid{stroke:#33363c}.zero{stroke:#ececec}.c0{stroke:#56b4e9;fill:#56b4e9}.c1{stroke:#ff9a57;fill:#ff9a57}
.c2{stroke:#2fcfa0;fill:#2fcfa0}.plain{stroke:#9a9a9a;fill:#16181c}}
"""

Change = Mapping[str, Any]


class Tick(NamedTuple):
    """A mark of an axis."""

    value: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureAxis:
    """An axis from its first tick to its last."""

    ticks: tuple[Tick, ...]

    def share(self, value: float) -> float:
        """Return where a value stands on the axis, 0 at its low end and 1 at its high end."""
        low, high = self.ticks[0].value, self.ticks[-1].value
        return (min(max(value, low), high) - low) / (high - low)


def picture(report: Report) -> str:
    """Return the drawing as SVG."""
    names = _names(report)
    changes = {
        (one["trace"], one["cluster"], one["metric"]): one
        for one in report["metrics"]
        if one["cluster"] in names and one["metric"] in _PANELS and one["change"] is not None
    }
    traces = list(dict.fromkeys(one["trace"] for one in report["metrics"]))
    axis = _axis(list(changes.values()))
    row = len(names) * _LINE + _PAD
    bottom = _TOP + len(traces) * row
    parts = [*_frame(axis, bottom)]
    for place, trace in enumerate(traces):
        top = _TOP + place * row
        parts += _labels(report, trace, top, len([one for one in traces if one is not None]))
        for line, name in enumerate(names):
            for panel, metric in enumerate(_PANELS):
                if (trace, name, metric) in changes:
                    y = top + _PAD / 2 + (line + 0.5) * _LINE
                    parts += _mark(changes[trace, name, metric], axis, _left(panel), y, _class(report, name))
    parts += _legend(report, names, bottom + _AXIS)
    return _drawing(parts, bottom + _AXIS + _LEGEND)


def called(report: Report, name: str) -> str:
    """Return what readers call a cluster."""
    if name == plain_clusters(report)[1]:
        return "plain again, the noise of the method"
    return f"sadvise, {name.replace(' at ', ' at fairness ')}"


def _names(report: Report) -> Sequence[str]:
    """Return the clusters that are drawn; the noise is the last one."""
    again = plain_clusters(report)[1]
    return [*advised(report), *([again] if any(one["cluster"] == again for one in report["metrics"]) else [])]


def _axis(changes: Sequence[Change]) -> PictureAxis:
    """Return the axis that both panels have in common."""
    ends = [one[end] for one in changes for end in ("low", "high") if one[end] is not None]
    points = [one["change"] for one in changes]
    low = min([*points, *(max(-_MOST, end) for end in ends), 0.0])
    high = max([*points, *(min(_MOST, end) for end in ends), 0.0])
    for step in _STEPS:
        first = math.floor(low / step)
        last = max(math.ceil(high / step), first + 1)
        if last - first <= _MOST_STEPS:
            break
    values = [step * place for place in range(first, last + 1)]
    return PictureAxis(ticks=tuple(Tick(value, f"{value:+g} %" if value else "0") for value in values))


def _left(panel: int) -> int:
    return _LABELS + panel * (_PANEL + _NUMBERS + _GAP)


def _frame(axis: PictureAxis, bottom: int) -> Iterator[Element]:
    """Draw the titles, the grid and the marks of the axes."""
    yield _text(
        "Change against a plain cluster with the same jobs, on a live Slurm, with 95 % intervals", 16, 24, "head"
    )
    for panel, title in enumerate(_PANELS.values()):
        left = _left(panel)
        yield _text(title, left, _TOP - 12, "head")
        for tick in axis.ticks:
            x = _x(axis, left, tick.value)
            yield element("path", d=f"M{x} {_TOP}V{bottom}", class_="grid" if tick.value else "zero")
            yield _text(tick.label, x, bottom + 16, "middle faint")
        middle = _x(axis, left, 0.0)
        yield _text("shorter \N{LEFTWARDS ARROW}", float(middle) - 8, bottom + 33, "end faint")
        yield _text("\N{RIGHTWARDS ARROW} longer", float(middle) + 8, bottom + 33, "faint")


def _labels(report: Report, trace: str | None, top: int, traces: int) -> Iterator[Element]:
    """Write what a row shows, below a line."""
    first = plain_clusters(report)[0]
    runs = next(one["runs"] for one in report["metrics"] if one["trace"] == trace and one["cluster"] == first)
    yield element("path", d=f"M16 {top}H{_WIDTH - 16}", class_="grid")
    yield _text(trace or f"all {plural(traces, 'trace')}", 16, top + _PAD / 2 + 14, "head")
    yield _text(plural(runs, "run"), 16, top + _PAD / 2 + 31, "faint")


def _mark(change: Change, axis: PictureAxis, left: int, y: float, kind: str) -> Iterator[Element]:
    """Draw a change, its interval and its figure; an interval that goes on has an arrow."""
    if change["low"] is not None and change["high"] is not None:
        low, high = (_x(axis, left, change[end]) for end in ("low", "high"))
        yield element("path", d=f"M{low} {y:g}H{high}", class_=f"bar {kind}")
        for x, is_cut, way in (
            (low, change["low"] < axis.ticks[0].value, 1),
            (high, change["high"] > axis.ticks[-1].value, -1),
        ):
            if is_cut:
                yield element(
                    "path", d=f"M{float(x) + 6 * way:g} {y - 4:g}L{x} {y:g}l{6 * way} 4", class_=f"bar {kind}"
                )
    yield _symbol(kind, float(_x(axis, left, change["change"])), y)
    yield _text(f"{signed(change['change'])} %", left + _PANEL + _NUMBERS, y + 4.5, "end")


def _symbol(kind: str, x: float, y: float) -> Element:
    """Draw the point of a cluster: circles for plain ones and the first advised one, else squares."""
    if kind in ("plain", "c0"):
        return element("circle", cx=f"{x:g}", cy=f"{y:g}", r="5", class_=f"bar {kind}" if kind == "plain" else kind)
    return element("path", d=f"M{x - 4.5:g} {y - 4.5:g}h9v9h-9z", class_=kind)


def _class(report: Report, name: str) -> str:
    if name in plain_clusters(report):
        return "plain"
    return f"c{advised(report).index(name) % _COLOURS}"


def _legend(report: Report, names: Sequence[str], top: int) -> Iterator[Element]:
    x = 22.0
    for name in names:
        yield _symbol(_class(report, name), x, top + 6)
        yield _text(called(report, name), x + 12, top + 10.5, "")
        x += 40 + 6.7 * len(called(report, name))


def _x(axis: PictureAxis, left: int, value: float) -> str:
    return f"{left + axis.share(value) * _PANEL:.1f}"


def _text(words: str, x: float | str, y: float, kind: str) -> Element:
    return element("text", words, x=str(x), y=f"{y:g}", class_=kind)


def element(tag: str, *children: Element | str, **attributes: str) -> Element:
    """Make an element; `class_` stands for class, and an underline in the name of an attribute for a hyphen."""
    made = Element(tag, {name.rstrip("_").replace("_", "-"): escaped(value) for name, value in attributes.items()})
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + escaped(child)
        else:
            made.text = (made.text or "") + escaped(child)
    return made


def _drawing(parts: Sequence[Element], height: int) -> str:
    style = element("style")
    # Not as text of a trace, of which line breaks are escaped.
    style.text = _STYLE
    drawing = element(
        "svg",
        element("title", "Change of job completion times and waits on live Slurm clusters"),
        style,
        element("rect", x="0.5", y="0.5", width=str(_WIDTH - 1), height=str(height - 1), rx="6", class_="paper"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {height}",
        width=str(_WIDTH),
        height=str(height),
        role="img",
    )
    return tostring(drawing, encoding="unicode") + "\n"
