"""Draws the figures of the web view, as the reports do."""

import math
from collections.abc import Sequence

from advisor.sim.study.tried_settings import Family
from advisor.view.charts import Axis, Bars, Figure, Mark, Series, Unit, bar_chart, change_axis, count_axis, point_chart
from advisor.view.frontier_table import FAMILIES
from advisor.watch.gain_history import GainOfDay
from advisor.web.frontier_file import TunedFrontier, TunedPoint


def gains_figure(days: Sequence[GainOfDay]) -> Figure:
    """Return the mean waits of each day with advice and without it."""
    standings = [gain.standing for gain in days]
    return bar_chart(
        ident="gains-chart",
        title="Mean wait by day",
        description="Where the bar with advice is shorter, jobs waited less than plain Slurm would have made them.",
        category_label="day",
        categories=[gain.day for gain in days],
        y_axis=Axis(label="mean wait", unit=Unit.DURATION, low=0.0),
        bars=[
            Bars(name="with advice", values=tuple(one.waited_s / max(1, one.jobs) for one in standings)),
            Bars(name="without advice", values=tuple(one.plain_s.median / max(1, one.jobs) for one in standings)),
        ],
    )


def frontier_figure(frontier: TunedFrontier, shown: Sequence[TunedPoint]) -> Figure:
    """Return the change of the mean JCT against the users worse off; numbers are those of the table."""
    numbers = {point.setting: str(number) for number, point in enumerate(shown)}
    families = {point.family: FAMILIES.get(point.family, point.family) for point in shown}
    series = [
        Series(
            name=name,
            marks=tuple(_mark(point, numbers[point.setting]) for point in shown if point.family == family),
        )
        for family, name in families.items()
    ]
    return point_chart(
        ident="frontier-chart",
        title=f"What settings gain and cost on {frontier.meta.trace}",
        description="Points further left gain more, points further down cost less.",
        x_axis=change_axis("change of the mean JCT against Slurm as it is"),
        y_axis=count_axis("users worse beyond chance"),
        series=series,
    )


def _mark(point: TunedPoint, label: str) -> Mark:
    change = point.change
    nothing = 0.0 if point.family == Family.PLAIN else math.nan
    return Mark(
        label=label,
        name=point.setting,
        x=nothing if change.percent is None else change.percent,
        y=float(point.users_worse_beyond_chance),
        low=math.nan if change.low is None else change.low,
        high=math.nan if change.high is None else change.high,
    )
