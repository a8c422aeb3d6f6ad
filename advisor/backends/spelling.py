"""Decodes Slurm's spellings of numbers, times, node lists and states; every function raises only `DecodeError`."""

import math
import re
import sys
from datetime import datetime
from functools import lru_cache
from typing import Final

from advisor.backends.process import printable
from advisor.domain.units import YEAR_S
from advisor.errors import DecodeError

# What stands where Slurm has nothing to say; `(null)` is its C library's word for a missing string.
UNSET: Final = frozenset(("", "(null)", "n/a", "none", "unknown", "not_set"))
NO_LIMIT: Final = frozenset(("unlimited", "infinite", "infinity"))
# Names that Slurm takes on a command line as they are; a comma would name two.
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.@][A-Za-z0-9_.@-]*", re.ASCII)


# The same few texts fill most fields of a queue; each is read once.
CACHED_TEXTS: Final = 4096

_COUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)", re.ASCII)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_MINUTES = re.compile(r"\d{1,12}", re.ASCII)
_CLOCK = re.compile(r"(\d{1,10}):(\d{1,4})(?::(\d{1,4}))?(?:\.\d+)?", re.ASCII)
_DAYS = re.compile(r"(\d{1,9})-(\d{1,4})(?::(\d{1,4}))?(?::(\d{1,4}))?", re.ASCII)
_SECONDS_SINCE_EPOCH = re.compile(r"\d{1,12}", re.ASCII)
_NODE_LIST = re.compile(r"[A-Za-z0-9_.,\[\]-]+", re.ASCII)
_ITEM = re.compile(r"(?:[^,\[\]]+|\[[^\]]*\])+")
# One pair of brackets at the end of a name: all lists that Slurm folds but those of names with several numbers.
_PLAIN_ITEM = r"(?:[A-Za-z0-9_.-]*[A-Za-z_.-]\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\]|[A-Za-z0-9_.-]+)"
_PLAIN_LIST = re.compile(f"{_PLAIN_ITEM}(?:,{_PLAIN_ITEM})*", re.ASCII)
_BRACKETS = re.compile(r"\[([^\]]*)\]")
# Far above any cluster; keeps a damaged list from filling the memory.
_MOST_NODES = 1 << 20
_LONGEST_RANGE = 40


@lru_cache(CACHED_TEXTS)
def signed(number: int) -> int:
    """Return a number of 32 bits with its sign, which pyslurm can leave out: 4294966296 is -1000."""
    return number - 2**32 if 2**31 <= number < 2**32 else number


def is_unset(text: str) -> bool:
    """Return whether a field is marked as empty."""
    return text.strip().lower() in UNSET


def optional_text(text: str) -> str:
    """Return a free text, empty where Slurm has none."""
    return "" if text == "(null)" else text


@lru_cache(CACHED_TEXTS)
def count(text: str, *, field: str) -> int:
    """Decode a number, with Slurm's binary suffixes (`4`, `1K`, `2.5K`)."""
    match = _COUNT.fullmatch(text.strip())
    if match is None or len(match[1]) > 20:
        raise unreadable(field, text, "a number")
    return round(float(match[1]) * 1024 ** _POWERS[match[2]]) if match[2] or "." in match[1] else int(match[1])


def whole(text: str, *, field: str) -> int:
    """Decode a number that differs from job to job, past the cache of `count`, which such would only fill."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else count(text, field=field)


@lru_cache(CACHED_TEXTS)
def integer(text: str, *, field: str) -> int:
    """Decode an integer, possibly negative."""
    digits = text.strip().removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 20:
        raise unreadable(field, text, "a whole number")
    return int(text)


def memory_mib(text: str, *, field: str) -> int:
    """Decode memory as TRES spell it (`62.50G`, `3000M`; without a suffix it is MiB)."""
    match = _COUNT.fullmatch(text.strip())
    if match is None or len(match[1]) > 20:
        raise unreadable(field, text, "an amount of memory")
    return round(float(match[1]) * 1024.0 ** (_POWERS[match[2] or "M"] - _POWERS["M"]))


@lru_cache(CACHED_TEXTS)
def duration_s(text: str, *, field: str) -> float | None:
    """Decode a duration (`2-00:00:00`, `1:30:00`, `30:00`, minutes alone); None where it is unlimited or not set.

    squeue writes INVALID for whatever is longer than a year.
    """
    spelled = text.strip()
    if is_unset(spelled) or spelled.lower() in NO_LIMIT or spelled in ("INVALID", "Partition_Limit"):
        return None
    if _MINUTES.fullmatch(spelled):
        return float(spelled) * 60
    if match := _DAYS.fullmatch(spelled):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    if match := _CLOCK.fullmatch(spelled):
        first, second, third = (None if part is None else int(part) for part in match.groups())
        if third is None:
            return float((first or 0) * 60 + (second or 0))
        return float(((first or 0) * 60 + (second or 0)) * 60 + third)
    raise unreadable(field, text, "a duration")


def time_limit_s(limit_s: float | None) -> float | None:
    """Return a job's limit as every reader can know it: above a year squeue does not spell it, so it counts as none."""
    return None if limit_s is None or limit_s > YEAR_S else limit_s


def instant(text: str, *, field: str) -> float | None:
    """Decode a point in time, seconds since 1970 or ISO in the local zone; None where there is none."""
    if text.isascii() and text.isdecimal() and len(text) <= 12:
        return float(text) or None
    spelled = text.strip()
    if _SECONDS_SINCE_EPOCH.fullmatch(spelled):
        return float(spelled) or None
    if is_unset(spelled):
        return None
    try:
        return datetime.fromisoformat(spelled).timestamp()
    except (ValueError, OverflowError, OSError) as err:
        raise unreadable(field, text, "a time") from err


@lru_cache(CACHED_TEXTS)
def node_names(text: str, *, field: str) -> tuple[str, ...]:
    """Unfold a node list (`n[01-04,07]`), sorted by name."""
    spelled = text.strip()
    if is_unset(spelled):
        return ()
    if _NODE_LIST.fullmatch(spelled) is None or _size(spelled) > _MOST_NODES:
        raise unreadable(field, text, "a node list")
    try:
        # A list is long, and one for each job, where users want it so: one text for each name.
        return tuple(sorted(map(sys.intern, _plain_names(spelled) or _unusual_names(spelled))))
    except ValueError as err:
        raise unreadable(field, text, "a node list") from err


def _unusual_names(spelled: str) -> set[str]:
    """Unfold a list as ClusterShell does; raises `ValueError`."""
    # Few sites have such names, and it takes as long to import as a few hundred lists.
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        # Without a resolver no name is taken for a group, whose members ClusterShell would ask a program for.
        return {str(name) for name in NodeSet(spelled, resolver=RESOLVER_NOGROUP)}
    except NodeSetException as err:
        raise ValueError(spelled) from err


def _plain_names(spelled: str) -> set[str]:
    """Unfold a list of plain items, many times as fast as ClusterShell; nothing for any other list."""
    names: set[str] = set()
    if _PLAIN_LIST.fullmatch(spelled) is None:
        return names
    for item in _ITEM.findall(spelled):
        prefix, bracket, ranges = item.rstrip("]").partition("[")
        for part in ranges.split(",") if bracket else ():
            low, dash, high = part.partition("-")
            if not dash:
                names.add(prefix + low)
            elif int(low) > int(high) or (len(low) != len(high) and "0" in (low[0], high[0])):
                return set()
            else:
                names.update(f"{prefix}{number:0{len(low)}}" for number in range(int(low), int(high) + 1))
        if not bracket:
            names.add(prefix)
    return names


@lru_cache(CACHED_TEXTS)
def names(text: str) -> tuple[str, ...]:
    """Split a list at its commas, in its own order, without what is unset."""
    return tuple(part for part in (raw.strip() for raw in text.split(",")) if not is_unset(part))


@lru_cache(CACHED_TEXTS)
def reason_word(text: str) -> str:
    """Return the plain word of why a job waits, without the detail that Slurm sometimes adds to it."""
    word = re.split(r"[,(\s]", optional_text(text).strip().replace(" ", "_"), maxsplit=1)[0].strip("_")
    # Shown instead of the reason itself when the nodes that would do are down or held for others.
    return "Resources" if word == "Nodes_required_for_job_are_DOWN" else word


def unreadable(field: str, text: str, wanted: str) -> DecodeError:
    """Make the error for a field that is not what it should be."""
    return DecodeError(
        f"{field} reads {printable(text, 80)!r}, which is not {wanted}: this Slurm release may spell it differently; "
        "try another --source"
    )


def _size(node_list: str) -> int:
    """Bound how many names a list unfolds to, without unfolding it."""
    return sum(
        math.prod(sum(map(_span, ranges.split(","))) for ranges in _BRACKETS.findall(name))
        for name in _ITEM.findall(node_list)
    )


def _span(part: str) -> int:
    low, dash, high = part.partition("-")
    if len(part) > _LONGEST_RANGE:
        return _MOST_NODES + 1
    return abs(int(high) - int(low)) + 1 if dash and low.isdecimal() and high.isdecimal() else 1
