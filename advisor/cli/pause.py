"""`sadvise pause`, `resume` and `acknowledge`: what people do about the daemon, at once."""

import getpass
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.options import JournalFile, Site, option
from advisor.clock import SystemClock
from advisor.domain.probation import DRIFT
from advisor.errors import ConfigError
from advisor.journal import SqliteJournal, opened
from advisor.site.breaker_events import acknowledge as write
from advisor.site.breaker_events import read_breakers, trust_again
from advisor.site.pause_file import pause as pause_daemon
from advisor.site.pause_file import resume as resume_daemon
from advisor.text import named
from advisor.view.terminal import print_labelled
from advisor.watch.changes import LOCK_WAIT_S
from advisor.watch.daemon_state import check_cluster
from advisor.watch.reading import Reading, journal_file


def pause(
    *,
    reason: Annotated[str, option("--reason TEXT", "The reason, shown in the log and in the journal.")] = "",
    freeze: Annotated[
        bool, option("--freeze", "Also leave in effect what is due to be reverted, until `sadvise resume`.")
    ] = False,
    site: Site,
) -> None:
    """Stop the daemon from making new changes, effective at once; it continues to read and recommend.

    Outstanding changes are reverted when they are due; with --freeze they stay as well. `sadvise revert --all` reverts
    them now, in either case. The pause is a file in the runtime folder.
    """
    folder = _folder(site)
    pause_daemon(folder, by=getpass.getuser(), reason=reason, freeze=freeze)
    print_labelled("paused", f"{folder}; `sadvise resume` ends the pause")


def resume(site: Site) -> None:
    """Let the daemon change jobs again."""
    folder = _folder(site)
    was = resume_daemon(folder)
    print_labelled("resumed" if was else "nothing", str(folder) if was else "was paused")


def _folder(site: Reading) -> Path:
    """Return the runtime folder of the configuration in force; raises `ConfigError` for that of another cluster."""
    config = site.load_config()
    check_cluster(config, site.cluster)
    return Path(config.daemon.runtime_folder)


def acknowledge(
    *,
    breaker: Annotated[
        str,
        typer.Argument(
            metavar="BREAKER", help="The open breaker, or forecast_drift, as `sadvise recommend` and `check` show it."
        ),
    ],
    reason: Annotated[str, option("--reason TEXT", "What was found, for the journal.")] = "",
    journal: JournalFile = None,
    site: Site,
) -> None:
    """Close a circuit breaker of the daemon, which counts again from now on; the journal keeps who did it and when.

    The daemon takes note in its next round. A breaker whose cause lasts opens again. With forecast_drift plans count
    with the run-time model again whose intervals no longer held, until jobs that end from now on show the same.
    """
    path = journal_file(site.load_config(), journal)
    # Nothing is made where there is no journal.
    SqliteJournal.read_only(path).close_file()
    with opened(path, wait_s=LOCK_WAIT_S) as held:
        names = [*(entry.name for entry in read_breakers(held)[0].open), *([DRIFT] if held.trust().drifted else [])]
        if breaker not in names:
            raise ConfigError(f"{named(breaker, longest=40)} is not open: open are {', '.join(names) or 'none'}")
        if breaker == DRIFT:
            trust_again(held, SystemClock().now(), by=getpass.getuser(), reason=reason)
        else:
            write(held, breaker, SystemClock().now(), by=getpass.getuser(), reason=reason)
    print_labelled("acknowledged", f"{breaker}; the daemon counts again from its next round on", width=14)
