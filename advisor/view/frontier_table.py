"""The frontier of `sadvise tune` as people read it, on a terminal and in a report."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from advisor.domain.units import duration
from advisor.sim.study.frontier import Point, chosen_lift
from advisor.sim.study.tried_settings import Family
from advisor.sim.traces.trace import Trace
from advisor.view.wording import change_in_words, shown, signed, verdict

HEADER: Final = (
    "setting",
    "mean JCT",
    "against slurm (95 %)",
    "p99 JCT",
    "longest wait",
    "late jobs",
    "users worse",
    "beyond chance",
    "worst user",
    "changes per job",
)
FAMILIES: Final[Mapping[str, str]] = {
    Family.PLAIN: "Slurm as it is",
    Family.PIN: "open gangs on the fewest nodes",
    Family.LIFT: "lifts",
    Family.CEILING: "lifts with true run times",
    Family.LOWER: "jobs only put back",
    Family.SLURM: "slurm.conf alone",
    Family.BOTH: "slurm.conf or pins under the chosen lift",
}


def shown_points(points: Sequence[Point], *, with_dominated: bool) -> list[Point]:
    """Return the points to show: the chosen lift and those that no other one beats, or all."""
    chosen = chosen_lift(points)
    return [point for point in points if with_dominated or point is chosen or not point.is_dominated]


def row_of(point: Point, trace: Trace) -> list[str]:
    """Return the fields of a point, in the order of `HEADER`."""
    is_plain = point.setting.family is Family.PLAIN
    users = f"{point.users_worse} of {len(point.losses)}"
    return [
        point.setting.name,
        shown("mean_jct_s", point.mean_jct_s),
        "" if is_plain else change_in_words(point.change),
        shown("p99_jct_s", point.p99_jct_s),
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
    if point.setting.family is Family.LOWER:
        return "cannot be set: jobs only put back in every round, the most that coordinators of accounts could do"
    texts: dict[str, list[str]] = {}
    for line in point.setting.lines:
        texts.setdefault(line.file, []).append(line.text)
    return "; ".join(f"{file}: {', '.join(lines)}" for file, lines in texts.items()) or "as it is"


def next_steps(points: Sequence[Point]) -> Iterator[tuple[str, str]]:
    """Yield labelled lines: whether pins pay by themselves, then on the chosen lift why this one, and how to set it."""
    chosen = chosen_lift(points)
    pin = next((point for point in points if point.setting.family is Family.PIN), None)
    if pin is not None and pin.change.is_clear and pin.change.percent < 0.0 and not pin.users_beyond_chance:
        change = change_in_words(pin.change)
        yield "pin", f"{change} without the daemon, no user worse beyond chance: {lines_of(pin)}"
    yield "chosen", f"{chosen.setting.name}: fewest users worse beyond chance, then the lowest mean JCT"
    if not chosen.change.is_clear:
        yield "chance", f"its mean JCT shows {verdict(chosen.change)} to plain Slurm on this trace"
    yield (
        "next",
        "write these lines to /etc/sadvise/conf.d/tune.toml, then: sadvise config check && systemctl reload sadvised",
    )
    for line in chosen.setting.lines:
        table, _, value = line.text.partition(" ")
        yield from (("", table), ("", value))


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
