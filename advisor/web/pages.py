"""Answers with the pages for people."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final
from urllib.parse import urlencode

from flask import Blueprint, Response, abort, make_response, render_template, request

from advisor.planning.levers import missing_by_lever
from advisor.sim.study.tried_settings import Family
from advisor.site.frontier_file import TunedFrontier, TunedPoint
from advisor.site.status_words import lines
from advisor.view.charts import Axis, Bars, Figure, Mark, Series, Unit, bar_chart, change_axis, count_axis, point_chart
from advisor.view.documents import skipped, skipped_by_rule
from advisor.view.frontier_report import FAMILIES
from advisor.view.lease_report import change_sentence
from advisor.view.markup import TYPES, asset
from advisor.view.rule_words import rule_in_short, rule_line, rule_sentence
from advisor.view.standing_report import in_order
from advisor.watch.cluster_view import ClusterView, NodeUse
from advisor.watch.daemon_state import GainOfDay
from advisor.web.line_selection import SORTS, LineQuery, line_page, line_query
from advisor.web.served_clusters import selected_content, served_clusters, summaries


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


PAGES: Final = Blueprint("pages", __name__)
# The page of all clusters, where several are served.
FRONT: Final = Blueprint("front", __name__)
# A page whose cluster is being read for the first time asks again after this time.
SOON_S: Final = 2
# Every cluster has these, so that a reader who goes to another one stays on the page.
OF_ANY_CLUSTER: Final = frozenset(
    f"pages.{name}" for name in ("cluster", "line", "advice", "changes", "gains", "frontier", "models", "daemon")
)
_MOST_CHOICES: Final = 500
_BEST: Final = 5


@FRONT.get("/")
def clusters() -> Response:
    """Show every cluster in a line."""
    rows = summaries(served_clusters())
    answer = make_response(render_template("clusters.html", rows=rows))
    if any(row.is_awaited for row in rows):
        answer.headers["Refresh"] = str(SOON_S)
    return answer


@PAGES.get("/")
def cluster() -> str:
    """Show the GPUs, the nodes and the fragmentation of the cluster."""
    seen = selected_content().view()
    return render_template(
        "cluster.html",
        view=seen,
        overview=seen.overview,
        leaves=list(_by_leaf(seen)),
        best=seen.advice[:_BEST],
    )


def _by_leaf(seen: ClusterView) -> Iterator[tuple[str, list[NodeUse], int | None, int]]:
    """Yield each leaf with its nodes, the GPUs in use where all are known, and all GPUs."""
    for leaf, of_leaf in groupby(sorted(seen.nodes, key=lambda use: (use.leaf, use.name)), key=lambda use: use.leaf):
        uses = list(of_leaf)
        known = [use.in_use for use in uses if use.in_use is not None]
        yield leaf, uses, sum(known) if len(known) == len(uses) else None, sum(use.gpus for use in uses)


@PAGES.get("/line")
def line() -> str:
    """Show the pending GPU jobs in Slurm's order, or as the query asks."""
    content, query = selected_content(), line_query(request.args)
    seen, config = content.view(), content.config
    return render_template(
        "line.html",
        view=seen,
        query=query,
        page=line_page(seen.line, query),
        choices=_choices(seen),
        link=lambda **changes: _link(query, **changes),
        sort_of=lambda name: _sort_state(query, name),
        in_short=rule_in_short,
        sentence_of=lambda rule: rule_sentence(rule, config.guard, config.planning),
    )


def _choices(seen: ClusterView) -> Mapping[str, list[str]]:
    """Return what the line can be filtered by: the values that occur in it."""
    return {
        "partition": _distinct(name for job in seen.line for name in job.partition.split(",")),
        "type": _distinct(job.gpu_type or "any" for job in seen.line),
        "reason": _distinct(job.reason for job in seen.line),
        "user": _distinct(job.user for job in seen.line),
    }


def _distinct(values: Iterator[str]) -> list[str]:
    return sorted({value for value in values if value})[:_MOST_CHOICES]


def _link(query: LineQuery, **changes: str | int) -> str:
    """Return the query of an address with some arguments changed; those at their defaults are left out."""
    arguments = {
        **query.filters,
        "sort": query.sort,
        "order": "desc" if query.descending else "",
        "page": str(query.page),
        **{name: str(value) for name, value in changes.items()},
    }
    defaults = {"sort": "place", "page": "1"}
    kept = {name: value for name, value in arguments.items() if value and defaults.get(name) != value}
    return f"?{urlencode(kept)}"


def _sort_state(query: LineQuery, name: str) -> tuple[str, str]:
    """Return the `aria-sort` of a column, and the address that sorts by it, the other way if it is sorted already."""
    assert name in SORTS, name  # noqa: S101  (names stand in templates)
    if query.sort != name:
        return "none", _link(query, sort=name, order="", page=1)
    state, order = ("descending", "") if query.descending else ("ascending", "desc")
    return state, _link(query, sort=name, order=order, page=1)


@PAGES.get("/jobs/<int:job_id>")
def job(job_id: int) -> str:
    """Show why a job waits, what is recommended for it, and what was changed."""
    content = selected_content()
    seen = content.view()
    shown = content.job(job_id)
    if shown is None:
        abort(404)
    return render_template(
        "job.html",
        view=seen,
        job=shown,
        waiting=next((row for row in seen.line if row.job_id == job_id), None),
        report=content.explained(job_id),
        advice=[row for row in seen.advice if job_id in row.job_ids],
        in_effect=[row for row in seen.in_effect if row.job_id == job_id],
        change_sentence=change_sentence,
    )


@PAGES.get("/advice")
def advice() -> str:
    """Show what should change, why, what it gains and whose wait it costs."""
    content = selected_content()
    seen, config = content.view(), content.config
    record = seen.planned.record
    return render_template(
        "advice.html",
        view=seen,
        left_alone=[
            rule_line(rule, count, config.guard, config.planning)
            for rule, count in skipped_by_rule(skipped(record)).items()
        ],
        missing=missing_by_lever(record.snapshot),
        forecasts=record.forecasts,
    )


@PAGES.get("/changes")
def changes() -> str:
    """Show the changes in effect, and when they are reverted."""
    return render_template("changes.html", view=selected_content().view())


@PAGES.get("/gains")
def gains() -> str:
    """Show what users gained by the counterfactual, by day and by user."""
    read = selected_content().gains()
    whole = read.history.whole
    days = read.history.days
    return render_template(
        "gains.html",
        gains=read,
        days=days,
        figure=gains_figure(days) if days else "",
        whole=whole,
        users=in_order(whole.by_user),
        max_credit=selected_content().config.planning.max_credit,
    )


@PAGES.get("/frontier")
def frontier() -> str:
    """Show the settings that `sadvise tune` tried."""
    read = selected_content().frontier()
    points = [] if read is None else read.shown
    figure = "" if read is None else frontier_figure(read, points)
    return render_template("frontier.html", frontier=read, points=points, figure=figure)


@PAGES.get("/assets/<name>")
def asset_file(name: str) -> Response:
    """Answer with a file that draws charts."""
    if name not in TYPES:
        abort(404)
    answer = Response(asset(name), content_type=TYPES[name])
    answer.cache_control.max_age = 86_400
    return answer


@PAGES.get("/models")
def models() -> str:
    """Show the models and how their intervals hold here."""
    content = selected_content()
    return render_template("models.html", models=content.models(), forecasts=content.view().planned.record.forecasts)


@PAGES.get("/daemon")
def daemon() -> str:
    """Show what `sadvise status` prints."""
    state = selected_content().daemon()
    return render_template("daemon.html", lines=[] if state is None else list(lines(state)))
