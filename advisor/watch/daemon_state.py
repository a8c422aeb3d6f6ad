"""Looks at the files of the daemon and at its journal, in which are the waits with advice and without it."""

import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from advisor.config import Config
from advisor.domain.dataclass import dataclass
from advisor.domain.standings import NO_STANDINGS, Standing, Standings, Stretch, standings_of
from advisor.domain.units import DAY_S
from advisor.errors import AdvisorError, ConfigError
from advisor.files import is_closed
from advisor.journal import SqliteJournal
from advisor.site.breaker_events import read_breakers
from advisor.site.lease_socket import asked
from advisor.site.pause_file import paused
from advisor.site.status_file import is_running, read_status
from advisor.site.status_words import Overlook
from advisor.watch.reading import journal_file


def daemon_state(config: Config, journal: Path | None, now: float) -> Overlook:
    """Return all that is known of the daemon of a configuration, of its journal or else of what it shows of that."""
    folder = Path(config.daemon.runtime_folder)
    last = read_status(folder)
    seen = Overlook(
        now=now,
        configured=config.mode.farthest,
        last=last,
        runs=last is not None and is_running(last.pid),
        pause=paused(folder),
    )
    path = journal_file(config, journal)
    try:
        if is_closed(path):
            return seen.with_leases(asked(folder).leases)
        return _with_journal(seen, path) if path.exists() else replace(seen, notes=(f"{path}: no such journal",))
    except (AdvisorError, OSError) as err:
        return replace(seen, out=None if last is None else last.out, notes=(str(err),))


def check_cluster(config: Config, cluster: str | None) -> None:
    """Raise `ConfigError` if the daemon of a configuration works on another cluster than the one that is named."""
    last = read_status(Path(config.daemon.runtime_folder))
    works_on = "" if last is None or last.planned is None else last.planned.cluster
    if cluster and works_on and works_on != cluster.lower():
        raise ConfigError(f"-M {cluster}: the daemon of this configuration works on cluster {works_on}")


def _with_journal(seen: Overlook, path: Path) -> Overlook:
    """Add what a journal holds: leases, breakers, and the waits of the last day beside those on plain Slurm."""
    with SqliteJournal.read_only(path) as kept:
        return replace(
            seen.with_leases(kept.leases()),
            breakers=read_breakers(kept)[0].open,
            last_day=kept.standings(seen.now - DAY_S).total,
        )


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
