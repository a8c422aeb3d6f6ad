"""`sadvise acknowledge`: let the daemon go on after a circuit breaker, or trust a run-time model that drifted."""

import getpass
from typing import Annotated

import typer

from advisor.cli.options import JournalFile, option
from advisor.cli.reading_options import Site
from advisor.clock import SystemClock
from advisor.domain.probation import DRIFT
from advisor.errors import ConfigError
from advisor.journal import SqliteJournal, opened
from advisor.site.breaker_events import acknowledge as write
from advisor.site.breaker_events import read_breakers, trust_again
from advisor.text import named
from advisor.view.terminal import print_labelled
from advisor.watch.changes import LOCK_WAIT_S
from advisor.watch.reading import journal_file


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
