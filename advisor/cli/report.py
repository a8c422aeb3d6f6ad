"""`sadvise report`: what the changes achieved."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from advisor.cli.options import OUTPUT, READING, Form, JournalFile, Site, instant_of, option
from advisor.clock import SystemClock
from advisor.config import Config
from advisor.errors import ConfigError
from advisor.journal import SqliteJournal
from advisor.site.status_file import read_status
from advisor.view.impact_report import COLUMNS, document, impact_of, print_report, rows, without_names
from advisor.view.terminal import tool_meta
from advisor.watch.reading import journal_file

SCHEMA = "sadvise.report/1"


def _missing(settings: Config) -> Mapping[str, str]:
    """Map the levers that the site lacks to what is missing, as the daemon saw it last; none where it is not known."""
    try:
        last = read_status(Path(settings.daemon.runtime_folder))
    except ConfigError:
        return {}
    return {} if last is None else last.asleep


def report(
    *,
    since: Annotated[
        str,
        option(
            "--since TIME",
            "Start of the period: 12h, 30d, 2026-03-01 or 2026-03-01T12:00. Does not shorten the experiment.",
            READING,
        ),
    ] = "30d",
    accounts: Annotated[
        bool, option("--accounts/--no-accounts", "List the users and accounts that gained and lost most.", OUTPUT)
    ] = True,
    site: Site,
    journal: JournalFile = None,
    output: Form,
) -> None:
    """Print the outcomes of the changes, the accuracy of the forecasts, and the effect measured by the experiment.

    Reads only the journal, not Slurm.
    """
    now = SystemClock().now()
    settings = site.load_config()
    with SqliteJournal.read_only(journal_file(settings, journal)) as past:
        impact = impact_of(
            past,
            settings.experiment,
            since=instant_of(since, now),
            now=now,
            planning=settings.planning,
            limits=settings.guard,
        )
    if not accounts:
        impact = without_names(impact)
    if output.is_for_people:
        print_report(impact, _missing(settings) if journal is None else {})
    else:
        meta = tool_meta(SCHEMA, since=impact.since, until=now)
        output.show({"meta": meta, **document(impact)}, COLUMNS, list(rows(impact)))
