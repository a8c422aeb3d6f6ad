"""`sadvise replay`: plan a recorded cycle again, and compare."""

from typing import Annotated

import typer

from advisor import __version__
from advisor.cli.options import Form, JournalFile, Site, option
from advisor.config import Config
from advisor.cycle import Cycle
from advisor.errors import JournalError, OptionsError
from advisor.journal import SqliteJournal
from advisor.journal.cycle_record import Recorded, digest_of, present_outcome, removed_reasons
from advisor.replay.deviations import Deviation, cycle_of, deviations, replayed
from advisor.view.table_layout import TableForm
from advisor.view.terminal import Output, print_labelled, tool_meta
from advisor.watch.reading import journal_file

SCHEMA = "sadvise.replay/1"
COLUMNS = ("job_id", "what", "recorded", "replayed")
LAST = "last"


def replay(
    *,
    cycle: Annotated[str, typer.Argument(metavar="CYCLE", help="Number of a cycle, or last.")] = LAST,
    with_config: Annotated[
        bool, option("--with-config", "Plan with the current settings, and show what would differ.")
    ] = False,
    journal: JournalFile = None,
    site: Site,
    output: Form,
) -> None:
    """Plan a recorded cycle again from its snapshot, forecasts and settings.

    Prints "same" if the outcome is equal to the byte; else prints the differences and exits with 1. With --with-config
    the recorded forecasts are still used, and a difference is not an error.
    """
    if cycle != LAST and not (cycle.isascii() and cycle.isdecimal() and len(cycle) <= 18):
        raise OptionsError(f"{cycle!a} is not a cycle: give its number, or {LAST}")
    settings = site.load_config()
    held = SqliteJournal.read_only(journal_file(settings, journal))
    try:
        record = held.recorded(None if cycle == LAST else int(cycle))
    finally:
        held.close_file()
    if (removed := removed_reasons(record.outcome)) and not with_config:
        raise JournalError(
            f"cycle {record.cycle_id} cannot be planned again: it proposed {', '.join(removed)}, which was removed: "
            "--with-config shows what would be planned today"
        )
    recorded = present_outcome(record.outcome)
    again = replayed(record, _today(record, settings) if with_config else cycle_of(record))
    differing = deviations(recorded, again)
    _print(record, digest_of(again), differing, output, same=again == recorded)
    if again != recorded and not with_config:
        raise typer.Exit(1)


def _today(record: Recorded, settings: Config) -> Cycle:
    """Return the pipeline with the current configuration and the recorded levers."""
    return Cycle(planning=settings.planning, limits=settings.guard, levers=record.levers, modes=settings.mode)


def _print(record: Recorded, digest: str, differing: tuple[Deviation, ...], output: Output, *, same: bool) -> None:
    if output.is_for_people and same:
        print_labelled("same", f"cycle {record.cycle_id}, digest {digest}")
        return
    if output.is_for_people:
        print_labelled("differs", f"cycle {record.cycle_id}, digest {record.digest} recorded, {digest} now", width=9)
        if record.version != __version__:
            print_labelled("recorded", f"by sadvise {record.version}, which may have planned otherwise", width=10)
    document = {
        "meta": tool_meta(SCHEMA, cluster=record.snapshot.config.cluster or None),
        "cycle": {
            "cycle_id": record.cycle_id,
            "taken_at": record.snapshot.taken_at,
            "version": record.version,
            "digest": record.digest,
        },
        "same": same,
        "digest": digest,
        "differences": differing,
    }
    rows = [[str(deviation.job_id), deviation.what, deviation.recorded, deviation.replayed] for deviation in differing]
    output.show(document, COLUMNS, rows, form=TableForm(folded=COLUMNS[1:]))
