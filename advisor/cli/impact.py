"""`sadvise report`: what the changes achieved."""

from typing import Annotated

import typer

from advisor import __version__
from advisor.cli.instants import instant_of
from advisor.cli.options import OUTPUT, READING, Cluster, ConfigFile, JournalFile, Json, NoHeader, Parsable
from advisor.clock import SystemClock
from advisor.journal import SqliteJournal
from advisor.view.impact_report import COLUMNS, document, impact_of, print_report, rows, without_names
from advisor.view.terminal import print_json, print_rows
from advisor.watch.reading import Reading, journal_file

SCHEMA = "sadvise.report/1"


def report(
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Start of the period: 12h, 30d, 2026-03-01 or 2026-03-01T12:00. Does not shorten the experiment.",
            rich_help_panel=READING,
        ),
    ] = "30d",
    accounts: Annotated[
        bool,
        typer.Option(
            "--accounts/--no-accounts",
            help="List the users and accounts that gained and lost most.",
            rich_help_panel=OUTPUT,
        ),
    ] = True,
    cluster: Cluster = None,
    config: ConfigFile = None,
    journal: JournalFile = None,
    json: Json = False,
    parsable: Parsable = False,
    noheader: NoHeader = False,
) -> None:
    """Print the outcomes of the changes, the accuracy of the forecasts, and the effect measured by the experiment.

    Reads only the journal, not Slurm.
    """
    now = SystemClock().now()
    settings = Reading(config=config, cluster=cluster).load_config()
    past = SqliteJournal.read_only(journal_file(settings, journal))
    try:
        impact = impact_of(
            past,
            settings.experiment,
            since=instant_of(since, now),
            now=now,
            planning=settings.planning,
            limits=settings.guard,
        )
    finally:
        past.close_file()
    if not accounts:
        impact = without_names(impact)
    if json:
        meta = {"tool": "sadvise", "version": __version__, "schema": SCHEMA, "since": impact.since, "until": now}
        print_json({"meta": meta, **document(impact)})
    elif parsable:
        print_rows(COLUMNS, list(rows(impact)), as_parsable=True, noheader=noheader)
    else:
        print_report(impact)
