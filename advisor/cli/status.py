"""`sadvise status`: how the daemon is doing, and why nothing happens if nothing happens."""

from typing import Final

import typer

from advisor.cli.options import ConfigFile, JournalFile, Json

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
    from advisor.clock import SystemClock
    from advisor.daemon.status_words import NOT_RUNNING as ENDED
    from advisor.daemon.status_words import lines, status_document
    from advisor.view.terminal import print_json, print_labelled
    from advisor.watch.daemon_state import daemon_state
    from advisor.watch.reading import Reading

    settings = Reading(config=config).load_config()
    seen = daemon_state(settings, journal, SystemClock().now())
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
