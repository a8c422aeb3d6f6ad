"""The frontier of `sadvise tune` as one HTML page that needs nothing but itself."""

import math
from collections.abc import Callable, Mapping, Sequence

from advisor import __version__
from advisor.domain.units import duration, plural
from advisor.sim.study.exploration import Exploration
from advisor.sim.study.frontier import Point, TuneOutcome
from advisor.sim.study.user_losses import ALLOWED_RATIO, ALLOWED_S, LEAST_JOBS
from advisor.sim.traces.trace import Trace
from advisor.view.charts import Axis, Figure, Mark, Series, change_axis, count_axis, percent_axis, point_chart
from advisor.view.frontier_table import (
    FAMILIES,
    HEADER,
    drawn_notes,
    lines_of,
    percent_or_zero,
    preset_rows,
    row_of,
    shown_points,
)
from advisor.view.html_report import Origin
from advisor.view.markup import Table, TableCell, page
from advisor.view.verdict_words import JCT_EXPLAINED, Tone, frontier_lead, tone_of


def frontier_page(exploration: Exploration, outcome: TuneOutcome, origin: Origin, *, with_dominated: bool) -> str:
    """Return the frontier as HTML; equal points give equal bytes."""
    trace, points, advised = exploration.trace, outcome.points, outcome.advised
    visible = shown_points(outcome, with_dominated=with_dominated)
    numbers = {point.setting.name: str(number) for number, point in enumerate(visible)}
    return page(
        "frontier.html",
        title=f"Settings tried on {trace.name}",
        subtitle=f"{plural(len(trace), 'job')} on {origin.clusters[trace.name]}",
        opening=frontier_lead(advised, settings=len(points), jobs=len(trace)),
        tone=Tone.UNCLEAR if advised is None else tone_of(advised.change),
        explained=JCT_EXPLAINED,
        presets=list(preset_rows(outcome)),
        charts=_charts(exploration, visible, numbers),
        frontier=Table(
            caption="The frontier",
            header=HEADER,
            rows=[_row(point, numbers, trace, is_chosen=point is advised) for point in visible],
            is_sortable=True,
        ),
        lines=Table(
            caption="What to set",
            header=["setting", "lines"],
            rows=[[f"{numbers[point.setting.name]}. {point.setting.name}", lines_of(point)] for point in visible],
            text_columns=[1],
        ),
        late=duration(exploration.plain.options.limits.max_added_delay_s),
        least_jobs=LEAST_JOBS,
        allowed=f"{100 * ALLOWED_RATIO:.0f} % and {duration(ALLOWED_S)}",
        beaten=f"{plural(sum(point.is_dominated for point in points), 'setting')} of {len(points)}",
        not_varied=exploration.left_out,
        drawn=drawn_notes(trace.sampled),
        named=[
            ("Command", origin.command),
            ("sadvise", __version__),
            ("Trace", f"{plural(len(trace), 'job')}. {trace.note}".rstrip()),
            ("Cluster", origin.clusters[trace.name]),
            ("Copies", f"{len(exploration.copies)}, drawn with seed {exploration.seed}"),
            ("Drawn at random, not recorded", ", ".join(trace.sampled) or "nothing"),
            ("Settings that differ from the defaults", ", ".join(origin.settings) or "none"),
        ],
    )


def _row(point: Point, numbers: Mapping[str, str], trace: Trace, *, is_chosen: bool) -> list[TableCell]:
    """Return the fields of a point, each with the figure that it stands for."""
    nothing = math.nan
    figures = (
        point.mean_jct_s,
        point.change.percent,
        point.p99_wait_s,
        point.longest_wait_s,
        point.late_jobs,
        point.users_worse,
        point.users_beyond_chance,
        nothing if point.worst is None else point.worst.percent,
        point.changes_per_job,
    )
    name, *texts = row_of(point, trace)
    cells = (TableCell(text, figure if text else nothing) for text, figure in zip(texts, figures, strict=True))
    number = numbers[point.setting.name]
    return [TableCell(f"{number}. {name}{' (advised)' if is_chosen else ''}", float(number)), *cells]


def _charts(exploration: Exploration, points: Sequence[Point], numbers: Mapping[str, str]) -> list[Figure]:
    """Draw the change of the mean JCT against what it costs users and single jobs, family by family."""
    jobs = max(1, len(exploration.trace))
    drawn: list[tuple[str, str, Axis, Callable[[Point], float]]] = [
        (
            "users",
            "Gain and users worse",
            count_axis("users worse beyond chance"),
            lambda point: float(point.users_beyond_chance),
        ),
        (
            "late", "Gain and late jobs", percent_axis("late jobs", None), lambda point: 100.0 * point.late_jobs / jobs
        ),
    ]  # fmt: skip
    return [
        point_chart(
            ident=ident,
            title=title,
            description="Points further left gain more, points further down cost less; numbers are those of the table.",
            x_axis=change_axis("change of the mean JCT against Slurm as it is"),
            y_axis=axis,
            series=[
                Series(
                    name=name,
                    marks=tuple(
                        _mark(point, numbers, value(point)) for point in points if point.setting.family == family
                    ),
                )
                for family, name in FAMILIES.items()
                if any(point.setting.family == family for point in points)
            ],
        )
        for ident, title, axis, value in drawn
    ]


def _mark(point: Point, numbers: Mapping[str, str], value: float) -> Mark:
    """Return a point with the interval of its change."""
    change, name = point.change, point.setting.name
    return Mark(
        label=numbers[name], name=name, x=percent_or_zero(change.percent), y=value, low=change.low, high=change.high
    )
