"""The frontier of `sadvise tune` as people read it, on a terminal and in a report."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from advisor.domain.units import duration, plural
from advisor.sim.study.frontier import Point, TuneOutcome
from advisor.sim.study.tried_settings import Family
from advisor.sim.traces.trace import Trace
from advisor.view.wording import change_in_words, shown, signed

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
