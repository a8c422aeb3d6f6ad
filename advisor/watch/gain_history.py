"""Reads from a journal how users waited with advice and without it: day by day, and user by user."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from advisor.domain.standings import NO_STANDINGS, Standing, Standings, Stretch, standings_of
from advisor.domain.units import DAY_S
from advisor.journal import SqliteJournal


@dataclass(frozen=True, slots=True, kw_only=True)
class GainOfDay:
    """The waits of the jobs of one day, in local time (YYYY-MM-DD), with advice and without it."""

    day: str
    standing: Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class GainHistory:
    """The waits of the last days: by day, of those on which something was compared, and over all of them."""

    days: tuple[GainOfDay, ...] = ()
    whole: Standings = NO_STANDINGS


def read_gains(journal: Path, now: float, *, days: int = 30) -> GainHistory:
    """Read the waits of the last days from a journal; raises `JournalError` if it cannot be read."""
    with SqliteJournal.read_only(journal) as kept:
        stretches = kept.stretches(now - days * DAY_S)
    return GainHistory(days=tuple(_by_day(stretches)), whole=standings_of(stretches))


def _by_day(stretches: Iterable[Stretch]) -> Iterable[GainOfDay]:
    """Yield the days in order; a stretch belongs to the day on which it began."""
    for day, of_day in groupby(stretches, key=lambda stretch: _day(stretch.anchor_time)):
        total = standings_of(of_day).total
        if total is not None:
            yield GainOfDay(day=day, standing=total)


def _day(posix_s: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(posix_s))
