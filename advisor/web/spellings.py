"""Spells values on pages; templates escape every text from outside."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from markupsafe import Markup, escape

from advisor.domain.forecast import Interval
from advisor.domain.plan import Evidence
from advisor.domain.units import DAY_S, duration, plural
from advisor.text import escaped
from advisor.view.documents import ChangeDocument, in_words, saving_in_words, shell
from advisor.view.request_words import evidence_words

# What stands where nothing is known; a screen reader passes over it.
NOTHING: Final = "\u2013"
_MINUS: Final = "\u2212"
_USED, _FREE, _UNKNOWN = "\u25a0", "\u25a1", "?"
# A node with more GPUs shows their number alone.
_MOST_DRAWN: Final = 16
# The year 5138: no real time is later, and some calendars end.
_LATEST_S: Final = 1e11


def ticked(value: str) -> Markup:
    """Return a sentence as HTML in which what stands between backticks is code."""
    parts = escaped(value).split("`")
    spelled = [
        escape(part) if place % 2 == 0 else Markup("<code>{}</code>").format(part) for place, part in enumerate(parts)
    ]
    return Markup("").join(spelled)


def span(seconds: float | None) -> str:
    """Return a length of time."""
    return NOTHING if seconds is None else duration(seconds)


def clock(posix_s: float | None, now: float) -> str:
    """Return an instant near `now` as short as it is clear: `14:05`, `Tue 14:05`, `2026-11-03 14:05`."""
    if posix_s is None or not 0.0 <= posix_s <= _LATEST_S:
        return NOTHING
    moment, today = time.localtime(posix_s), time.localtime(now)
    if moment[:3] == today[:3]:
        return time.strftime("%H:%M", moment)
    return time.strftime("%a %H:%M" if abs(posix_s - now) < 6 * DAY_S else "%Y-%m-%d %H:%M", moment)


def in_evidence_words(evidence: Mapping[str, Evidence], now: float) -> Iterator[tuple[str, str]]:
    """Yield the numbers behind a finding, each with its name in words."""
    return evidence_words(evidence, lambda posix_s: clock(posix_s, now))


def second(posix_s: float) -> str:
    """Return the time of day to the second."""
    return time.strftime("%H:%M:%S", time.localtime(posix_s))


def day(posix_s: float) -> str:
    """Return the date of an instant."""
    return time.strftime("%Y-%m-%d", time.localtime(posix_s))


def iso(posix_s: float) -> str:
    """Return an instant for programs."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(posix_s))


def interval(times: Interval | None, now: float) -> str:
    """Return the instants between which something happens in eight of ten cases."""
    if times is None:
        return NOTHING
    low, high = clock(times.low, now), clock(times.high, now)
    return low if low == high else f"{low} to {high}"


def signed(seconds: float) -> str:
    """Return a difference of times with its sign."""
    size = duration(abs(seconds))
    sign = "" if not seconds else _MINUS if seconds < 0 else "+"
    return f"{sign}{size}"


def number(value: float | None) -> str:
    """Return a count, or that it is not known."""
    return "?" if value is None else f"{value:,}"


def percent(part: float | None, whole: float | None) -> str:
    """Return a share in percent."""
    return NOTHING if part is None or not whole else f"{100 * part / whole:.0f} %"


def squares(in_use: int | None, gpus: int) -> str:
    """Return a square for each GPU of a node, filled for those in use."""
    if gpus > _MOST_DRAWN:
        return ""
    return _UNKNOWN * gpus if in_use is None else _USED * min(in_use, gpus) + _FREE * (gpus - min(in_use, gpus))


def cost(row: ChangeDocument) -> str:
    """Return whose wait a published recommendation costs, and how much."""
    expected, others, exchanged = row.expected, row.expected.others, row.evidence.get("other_job_id")
    delay_s = others.delay_s_max
    most = "" if delay_s is None else f" up to {duration(delay_s)}"
    costs = []
    if exchanged is not None:
        costs.append(f"the job itself{most}" if others.jobs else f"job {exchanged}, which gives its place")
    elif others.jobs != 0 and delay_s != 0.0:
        jobs = "other jobs" if others.jobs is None else plural(others.jobs, "other job")
        costs.append(f"{jobs}{most}{' each' if most and others.jobs != 1 else ''}")
    if expected.added_delay_max_s > 0:
        costs.append(f"the job itself up to {duration(expected.added_delay_max_s)}")
    return ", ".join(costs) or "none"


FILTERS: Final[Mapping[str, Callable[..., object]]] = {
    "ticked": ticked,
    "span": span,
    "clock": clock,
    "second": second,
    "day": day,
    "iso": iso,
    "interval": interval,
    "signed": signed,
    "number": number,
    "percent": percent,
    "squares": squares,
    "cost": cost,
    "plural": plural,
    "shell": shell,
    "saving": saving_in_words,
    "in_evidence_words": in_evidence_words,
    "in_words": in_words,
}
