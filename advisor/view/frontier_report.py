"""The frontier of `sadvise tune` as people read it: on a terminal, and as one self-contained HTML page."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from advisor import __version__
from advisor.domain.units import duration, plural
from advisor.sim.study.exploration import Exploration
from advisor.sim.study.frontier import Point, TuneOutcome
from advisor.sim.study.tried_settings import Family
from advisor.sim.study.user_losses import ALLOWED_RATIO, ALLOWED_S, LEAST_JOBS
from advisor.sim.traces.trace import Trace
from advisor.view.charts import Axis, Figure, Mark, Series, change_axis, count_axis, percent_axis, point_chart
from advisor.view.html_report import Origin
from advisor.view.markup import Table, TableCell, page
from advisor.view.wording import JCT_EXPLAINED, Tone, change_in_words, frontier_lead, shown, signed, tone_of

HEADER: Final = (
    "setting",
    "mean JCT",
    "against slurm (95 %)",
    "p99 wait",
    "longest wait",
    "late jobs",
    "users worse",
    "beyond chance",
    "worst user",
    "changes per job",
)
# Where the lines of a file go, and what puts them into effect.
_PLACES: Final[Mapping[str, tuple[str, str]]] = {
    "sadvise.toml": (
        "/etc/sadvise/conf.d/tune.toml",
        "sadvise config check && systemctl reload sadvised",
    ),
    "sadvise_site.lua": ("/etc/slurm/sadvise_site.lua", "touch /etc/slurm/job_submit.lua"),
    "slurm.conf": ("/etc/slurm/slurm.conf", "scontrol reconfigure"),
}
FAMILIES: Final[Mapping[str, str]] = {
    Family.PLAIN: "Slurm as it is",
    Family.PIN: "open gangs on the fewest nodes",
    Family.LIFT: "lifts",
    Family.CEILING: "lifts with true run times",
    Family.SLURM: "slurm.conf alone",
    Family.BOTH: "several at once",
}


def shown_points(outcome: TuneOutcome, *, with_dominated: bool) -> list[Point]:
    """Return the points to show: the best of each preset, that of slurm.conf, and those that no other beats; or all."""
    named = outcome.named
    return [
        point
        for point in outcome.points
        if with_dominated or not point.is_dominated or any(point is other for other in named)
    ]


def row_of(point: Point, trace: Trace) -> list[str]:
    """Return the fields of a point, in the order of `HEADER`."""
    is_plain = point.setting.family is Family.PLAIN
    users = f"{point.users_worse} of {len(point.losses)}"
    return [
        point.setting.name,
        shown("mean_jct_s", point.mean_jct_s),
        "" if is_plain else change_in_words(point.change),
        shown("p99_wait_s", point.p99_wait_s),
        shown("longest_wait_s", point.longest_wait_s),
        f"{point.late_jobs:,.0f} ({100 * point.late_jobs / max(1, len(trace)):.1f} %)",
        "" if is_plain else users,
        "" if is_plain else str(point.users_beyond_chance),
        worst_user(point, trace),
        f"{point.changes_per_job:.2f}",
    ]


def worst_user(point: Point, trace: Trace) -> str:
    """Return the user who loses most, with the loss: `ann +12.0 % (+1.5 h)`; none if no user loses."""
    loss = point.worst
    if loss is None:
        return ""
    return f"{trace.users[loss.user]} {signed(loss.percent)} % (+{duration(loss.loss_s)})"


def lines_of(point: Point) -> str:
    """Return what to put into which file for a point."""
    if point.setting.family is Family.CEILING:
        return "cannot be set: knows the true run times, and shows what better forecasts could gain at most"
    return "; ".join(f"{file}: {', '.join(texts)}" for file, texts in _by_file(point).items()) or "as it is"


def _by_file(point: Point) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for line in point.setting.lines:
        texts.setdefault(line.file, []).append(line.text)
    return texts


def preset_rows(outcome: TuneOutcome) -> Iterator[tuple[str, str]]:
    """Yield the name of each preset with its best setting, what it gains, and at whose price; then slurm.conf alone."""
    plain, tuned = outcome.points[0], outcome.tuned_slurm
    wait = shown("p99_wait_s", plain.p99_wait_s)
    for preset, point in outcome.presets.items():
        if point is not None:
            yield preset, _gain(point)
        elif any(other.setting.preset is preset for other in outcome.points):
            yield preset, f"none: under each the p99 wait is longer than under slurm ({wait})"
        else:
            yield preset, "none: nothing to try on this trace"
    if tuned is not plain:
        yield "slurm.conf", _gain(tuned)


def _gain(point: Point) -> str:
    """Return what a setting gains and costs, on one line."""
    worse, users = point.users_worse, plural(len(point.losses), "user")
    wait = shown("p99_wait_s", point.p99_wait_s)
    return (
        f"{point.setting.name}: {change_in_words(point.change)}, p99 wait {wait}, "
        f"{worse} of {users} worse, {point.users_beyond_chance} beyond chance"
    )


def next_steps(outcome: TuneOutcome) -> Iterator[tuple[str, str]]:
    """Yield labelled lines: what is advised, why, what it gains beyond slurm.conf alone, and how to set it."""
    point = outcome.advised
    if point is None:
        yield "advised", "leave Slurm as it is: no preset lowers the mean JCT clearly on this trace"
        return
    yield "advised", f"{point.setting.preset}: fewest users worse beyond chance, then the lowest mean JCT"
    plain, tuned, now = outcome.points[0], outcome.tuned_slurm, outcome.in_force
    if tuned is not plain:
        yield "beyond", f"{change_in_words(outcome.beyond(tuned, point))} against the best of slurm.conf alone"
    if now is point:
        yield "in force", "by sadvise.toml this is how the daemon runs now"
    elif now is not plain:
        yield (
            "in force",
            f"{now.setting.name} by sadvise.toml; against it {change_in_words(outcome.beyond(now, point))}",
        )
    for file, texts in _by_file(point).items():
        place, then = _PLACES[file]
        yield "next", f"write to {place}, then: {then}"
        for text in texts:
            table, _, value = text.partition(" ")
            yield from (("", table), ("", value)) if text.startswith("[") else (("", text),)


def drawn_notes(sampled: Sequence[str]) -> list[str]:
    """Return what columns drawn at random mean for the frontier."""
    notes = []
    if "user" in sampled:
        notes.append("users are drawn at random, not recorded, and so is all that is shown of them")
    if "time_limit_s" in sampled:
        notes.append("time limits are drawn at random, not recorded, and lifts go by them")
    if "nodes_max" in sampled:
        notes.append("node counts are drawn at random, not recorded, and pins go by them")
    return notes


def percent_or_zero(percent: float) -> float:
    """Return a change in percent, 0 where there is none."""
    return 0.0 if math.isnan(percent) else percent


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
