"""The frontier of `sadvise tune` as one HTML page that needs nothing but itself."""

import math
from collections.abc import Callable, Mapping, Sequence
from xml.etree.ElementTree import Element

from advisor import __version__
from advisor.domain.units import duration, plural
from advisor.sim.study.exploration import Exploration
from advisor.sim.study.frontier import Point, chosen_lift
from advisor.sim.study.tried_settings import Family
from advisor.sim.study.user_losses import ALLOWED_RATIO, ALLOWED_S, LEAST_JOBS
from advisor.sim.traces.trace import Trace
from advisor.view.charts import Axis, Mark, Series, change_axis, count_axis, percent_axis, point_chart
from advisor.view.frontier_table import HEADER, drawn_notes, lines_of, percent_or_zero, row_of, shown_points
from advisor.view.html_report import Origin
from advisor.view.markup import Cell, Child, Number, element, page, table, unbroken
from advisor.view.verdict_words import JCT_EXPLAINED, frontier_lead, tone_of

_SERIES: dict[Family, str] = {
    Family.PLAIN: "Slurm as it is",
    Family.LIFT: "lifts",
    Family.CEILING: "lifts with true run times",
    Family.LOWER: "jobs only put back",
    Family.SLURM: "slurm.conf alone",
    Family.BOTH: "slurm.conf under the chosen lift",
}


def frontier_page(exploration: Exploration, points: Sequence[Point], origin: Origin, *, with_dominated: bool) -> str:
    """Return the frontier as HTML; equal points give equal bytes."""
    title = f"Settings tried on {exploration.trace.name}"
    trace, chosen = exploration.trace, chosen_lift(points)
    visible = shown_points(points, with_dominated=with_dominated)
    numbers = {point.setting.name: str(number) for number, point in enumerate(visible)}
    lines: list[list[Child]] = [
        [f"{numbers[point.setting.name]}. {point.setting.name}", lines_of(point)] for point in visible
    ]
    opening = frontier_lead(chosen, settings=len(points), jobs=len(trace))
    return page(
        f"sadvise: {title}",
        element("h1", title),
        element("p", f"{plural(len(trace), 'job')} on {origin.clusters[trace.name]}", class_="subtitle"),
        element("p", *unbroken(opening), class_=f"verdict {tone_of(chosen.change)}"),
        element("p", JCT_EXPLAINED),
        element("div", *_charts(exploration, visible, numbers), class_="charts"),
        table(
            "The frontier",
            list(HEADER),
            [_row(point, numbers, trace, is_chosen=point is chosen) for point in visible],
            is_sortable=True,
        ),
        table("What to set", ["setting", "lines"], lines, text_columns=[1]),
        *_notes(exploration, points),
        element("h2", "How these figures were made"),
        _facts(exploration, origin),
    )


def _row(point: Point, numbers: Mapping[str, str], trace: Trace, *, is_chosen: bool) -> list[Cell]:
    """Return the fields of a point, each with the figure that it stands for."""
    nothing = math.nan
    figures = (
        point.mean_jct_s,
        point.change.percent,
        point.p99_jct_s,
        point.longest_wait_s,
        point.late_jobs,
        point.users_worse,
        point.users_beyond_chance,
        nothing if point.worst is None else point.worst.percent,
        point.changes_per_job,
    )
    name, *texts = row_of(point, trace)
    cells = (Number(text, figure if text else nothing) for text, figure in zip(texts, figures, strict=True))
    number = numbers[point.setting.name]
    return [Number(f"{number}. {name}{' (chosen)' if is_chosen else ''}", float(number)), *cells]


def _facts(exploration: Exploration, origin: Origin) -> Element:
    trace = exploration.trace
    facts = {
        "Command": origin.command,
        "sadvise": __version__,
        "Trace": f"{plural(len(trace), 'job')}. {trace.note}".rstrip(),
        "Cluster": origin.clusters[trace.name],
        "Copies": f"{len(exploration.copies)}, drawn with seed {exploration.seed}",
        "Drawn at random, not recorded": ", ".join(trace.sampled) or "nothing",
        "Settings that differ from the defaults": ", ".join(origin.settings) or "none",
    }
    return element("dl", *(part for name, text in facts.items() for part in (element("dt", name), element("dd", text))))


def _charts(exploration: Exploration, points: Sequence[Point], numbers: dict[str, str]) -> list[Element]:
    """Draw the change of the mean JCT against what it costs users and single jobs."""
    jobs = max(1, len(exploration.trace))
    x_axis = change_axis("change of the mean JCT against Slurm as it is")

    def chart(ident: str, title: str, y_axis: Axis, value: Callable[[Point], float]) -> Element:
        description = "Points further left gain more, points further down cost less; numbers are those of the table."
        return _chart(ident, title, description, (x_axis, y_axis), points, numbers, value)

    return [
        chart(
            "users",
            "Gain and users worse",
            count_axis("users worse beyond chance"),
            lambda point: float(point.users_beyond_chance),
        ),
        chart(
            "late", "Gain and late jobs", percent_axis("late jobs", None), lambda point: 100.0 * point.late_jobs / jobs
        ),
    ]


def _chart(
    ident: str,
    title: str,
    description: str,
    axes: tuple[Axis, Axis],
    points: Sequence[Point],
    numbers: dict[str, str],
    value: Callable[[Point], float],
) -> Element:
    """Draw the points family by family, with the intervals of their changes."""
    series = []
    for family, name in _SERIES.items():
        marks = tuple(
            Mark(
                label=numbers[point.setting.name],
                name=point.setting.name,
                x=percent_or_zero(point.change.percent),
                y=value(point),
                low=point.change.low,
                high=point.change.high,
            )
            for point in points
            if point.setting.family is family
        )
        if marks:
            series.append(Series(name=name, marks=marks))
    return point_chart(ident=ident, title=title, description=description, x_axis=axes[0], y_axis=axes[1], series=series)


def _notes(exploration: Exploration, points: Sequence[Point]) -> list[Element]:
    late = duration(exploration.plain.options.limits.max_added_delay_s)
    allowed = f"{100 * ALLOWED_RATIO:.0f} % and {duration(ALLOWED_S)}"
    beaten = sum(point.is_dominated for point in points)
    notes = [
        "Every setting ran the same copies of the trace, in which each job is submitted up to five minutes later.",
        "Intervals are 95 % intervals of a paired bootstrap over blocks of jobs.",
        f"A late job starts more than {late} later than under plain Slurm.",
        "Late jobs of plain Slurm itself are counted between one copy and the next, and are late by chance alone.",
        f"Users with {LEAST_JOBS} jobs or more are compared.",
        f"Worse off are those whose mean JCT is longer by more than {allowed}.",
        "Beyond chance are those of them whose loss the differences between the copies do not explain.",
        f"{plural(beaten, 'setting')} of {len(points)} are beaten by another one in every column.",
        *(f"Not varied: {reason}." for reason in exploration.left_out),
        *(f"Mind that {note}." for note in drawn_notes(exploration.trace.sampled)),
    ]
    return [element("h2", "Notes"), element("ul", *(element("li", note) for note in notes), class_="notes")]
