"""`sadvise status`: how the daemon is doing, and why nothing happens if nothing happens."""

from typing import TYPE_CHECKING, Final

import typer

from advisor.cli.options import ConfigFile, JournalFile, Json

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.config import Config
    from advisor.daemon.status_words import Overlook

SCHEMA: Final = "sadvise.status/1"
# For monitoring; 1 and 2 are those of errors and of usage.
DEGRADED: Final = 4
NOT_RUNNING: Final = 5


def status(config: ConfigFile = None, journal: JournalFile = None, json: Json = False) -> None:
    """Show how the daemon is doing: mode, pause, breakers, last round, changes in effect, and today's gain.

    Says why nothing was changed if nothing was. Asks Slurm nothing. Exits with 0 if all is well, 4 if the daemon runs
    but a breaker is open, a change is overdue or rounds fail, 5 if it does not run.
    """
    from advisor import __version__
    from advisor.cli.reading import Reading
    from advisor.clock import SystemClock
    from advisor.daemon.status_words import NOT_RUNNING as ENDED
    from advisor.daemon.status_words import lines, status_document
    from advisor.view.terminal import print_json, print_labelled

    settings = Reading(config=config).load_config()
    seen = _seen(settings, journal, SystemClock().now())
    if json:
        meta = {"tool": "sadvise", "version": __version__, "schema": SCHEMA, "now": seen.now}
        print_json({"meta": meta, **status_document(seen)})
    else:
        for label, text in lines(seen):
            print_labelled(label, text, width=10)
    if seen.state == ENDED:
        raise typer.Exit(NOT_RUNNING)
    if not seen.is_well:
        raise typer.Exit(DEGRADED)


def _seen(settings: "Config", journal: "Path | None", now: float) -> "Overlook":
    """Look at the files of the daemon, and at its journal, or else at what it shows of it."""
    from dataclasses import replace
    from pathlib import Path

    from advisor.cli.reading import is_closed, journal_file
    from advisor.daemon.lease_socket import asked
    from advisor.daemon.pause_file import paused
    from advisor.daemon.status_file import is_running, read_status
    from advisor.daemon.status_words import Overlook
    from advisor.errors import AdvisorError

    folder = Path(settings.daemon.runtime_folder)
    last = read_status(folder)
    seen = Overlook(
        now=now,
        configured=settings.mode.farthest,
        last=last,
        runs=last is not None and is_running(last.pid),
        pause=paused(folder),
    )
    path = journal_file(settings, journal)
    try:
        if is_closed(path):
            return seen.with_leases(asked(folder).leases)
        return _with_journal(seen, path) if path.exists() else replace(seen, notes=(f"{path}: no such journal",))
    except (AdvisorError, OSError) as err:
        return replace(seen, out=None if last is None else last.out, notes=(str(err),))


def _with_journal(seen: "Overlook", path: "Path") -> "Overlook":
    """Add what a journal holds: leases, breakers, and the waits of today beside those on plain Slurm."""
    from dataclasses import replace

    from advisor.daemon.breaker_events import read_breakers
    from advisor.domain.units import DAY_S
    from advisor.journal import SqliteJournal

    with SqliteJournal.read_only(path) as kept:
        return replace(
            seen.with_leases(kept.leases()),
            breakers=read_breakers(kept)[0].open,
            today=kept.standings(seen.now - DAY_S).total,
        )
