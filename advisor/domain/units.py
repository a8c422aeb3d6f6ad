"""Units of time in seconds, and numbers with their units for people."""

from typing import Final, NamedTuple

MINUTE_S: Final = 60.0
HOUR_S: Final = 60 * MINUTE_S
DAY_S: Final = 24 * HOUR_S
WEEK_S: Final = 7 * DAY_S
YEAR_S: Final = 365 * DAY_S


class _Unit(NamedTuple):
    """A unit of time, and the length from which it is used."""

    name: str
    length_s: float
    from_s: float
    digits: int


_UNITS: Final = (
    _Unit("d", DAY_S, 2 * DAY_S, 1),
    _Unit("h", HOUR_S, HOUR_S, 1),
    _Unit("min", MINUTE_S, MINUTE_S, 0),
    _Unit("s", 1.0, 0.0, 0),
)


def duration(seconds: float) -> str:
    """Return a length of time in its largest fitting unit: `45 s`, `12 min`, `3.5 h`, `2.1 d`."""
    size = abs(seconds)
    if size < MINUTE_S:
        return f"{seconds:.0f} s"
    if size < HOUR_S:
        return f"{seconds / MINUTE_S:.0f} min"
    if size < 2 * DAY_S:
        return f"{seconds / HOUR_S:.1f} h"
    return f"{seconds / DAY_S:.1f} d"


def span(low_s: float, high_s: float) -> str:
    """Return a range of times: `2.0 to 4.5 h`, `-27 s to 41.4 h`."""
    low, high = duration(low_s), duration(high_s)
    number, _, unit = low.partition(" ")
    if low == high:
        return low
    return f"{number} to {high}" if high.endswith(f" {unit}") else f"{low} to {high}"


def gain(value_s: float, low_s: float, high_s: float) -> str:
    """Return a time with its range, all in the unit of the longest: `9.0 h (-0.4 to 41.4)`, `1.5 h`."""
    longest_s = max(abs(value_s), abs(low_s), abs(high_s))
    unit = next((unit for unit in _UNITS if longest_s >= unit.from_s), _UNITS[-1])
    value, low, high = (_rounded(seconds / unit.length_s, unit.digits) for seconds in (value_s, low_s, high_s))
    return f"{value} {unit.name}" if low == high else f"{value} {unit.name} ({low} to {high})"


def _rounded(number: float, digits: int) -> str:
    """Return a number with some digits after the point; 0 without."""
    text = f"{number:.{digits}f}"
    return text if float(text) else "0"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 job`, `2 jobs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def gpu_time(hours: float) -> str:
    """Return a number of GPU-hours, with two digits below one."""
    return f"{hours:.1f} GPU-hours" if hours >= 1.0 else f"{hours:.2g} GPU-hours"
