"""`sadvise journal`: outstanding changes, what was proposed and done, and whether the audit is intact."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from advisor.cli.options import FILTERS, OUTPUT, Form, JournalFile, Site, instant_of, option
from advisor.clock import SystemClock
from advisor.domain.actions import Published
from advisor.domain.lease import Lease
from advisor.domain.units import plural
from advisor.errors import JournalError, OptionsError
from advisor.files import is_closed
from advisor.journal import SqliteJournal
from advisor.journal.disclosure import Disclosure
from advisor.journal.rows import PastStop
from advisor.journal.views import RowQuery
from advisor.site.lease_socket import asked
from advisor.view.documents import job_ids
from advisor.view.table_layout import TableForm
from advisor.view.terminal import Output, instant, is_terminal, print_json, print_labelled, short_instant, tool_meta
from advisor.watch.reading import journal_file as chosen

SCHEMA = "sadvise.journal/1"
# A row of a view, as published.
Row = dict[str, Any]


class View(StrEnum):
    """The parts of the journal."""

    LEASES = "leases"
    CYCLES = "cycles"
    CHANGES = "changes"
    AUDIT = "audit"
    VERIFY = "verify"


def journal(
    *,
    view: Annotated[
        View,
        typer.Argument(
            metavar="[VIEW]",
            help="leases: outstanding changes; changes: all that was proposed, refused, held back, applied and taken "
            "back; cycles; audit; verify: whether the audit and the tables that decide are intact.",
        ),
    ] = View.LEASES,
    jobs: Annotated[str | None, option("-j --jobs LIST", "Only these jobs, separated by commas.", FILTERS)] = None,
    since: Annotated[
        str | None, option("--since TIME", "Only rows since: 90s, 30m, 2h, 3d, 1w ago, or 2026-03-01T12:00.", FILTERS)
    ] = None,
    most: Annotated[int, option("-n --lines", "Show only the newest N rows.", OUTPUT, min=1)] = 50,
    journal_file: JournalFile = None,
    site: Site,
    output: Form,
) -> None:
    """Print the journal, newest rows first; read-only, also while the daemon runs.

    Where the journal is closed to a user, `leases` shows what the daemon shows of it. `verify` exits with 1 if the
    audit, or a table that decides, was changed by another program, and names the first broken row and the tables.
    """
    looked = _looked(jobs, since, most)
    settings = site.load_config()
    path = chosen(settings, journal_file)
    if is_closed(path):
        disclosure = _disclosed(path, Path(settings.daemon.runtime_folder), view)
        rows = _lease_rows((lease for lease in disclosure.leases if lease.ending is None), looked)
        _print(view, rows, disclosure.cluster, output)
        return
    held = SqliteJournal.read_only(path)
    try:
        if view is View.VERIFY:
            _verify(held, json=output.json)
            return
        rows = _rows(held, view, looked)
        cluster = held.cluster()
    finally:
        held.close_file()
    _print(view, rows, cluster, output)


def _print(view: View, rows: list[Row], cluster: str | None, output: Output) -> None:
    columns = _COLUMNS[view]
    if rows or not output.is_for_people:
        # A pipe gets the year as well.
        when = short_instant if is_terminal() else instant
        lines = [[_field(name, row[name], when) for name in columns] for row in rows]
        document = {"meta": tool_meta(SCHEMA, cluster=cluster), view.value: rows}
        form = TableForm(whole=_WHOLE, folded=("said", "note", "detail"), omissible=_OMISSIBLE.get(view, ()))
        output.show(document, columns, lines, right=(0,), form=form)
    else:
        print_labelled("nothing", "of ours is out" if view is View.LEASES else "is written down")


def _verify(held: SqliteJournal, *, json: bool) -> None:
    """Verify the audit and the tables that decide, and exit with 1 if one of them was changed by another program."""
    result = held.verify()
    if json:
        print_json({"meta": tool_meta(SCHEMA, cluster=held.cluster()), "verify": result})
    else:
        if result.broken is None:
            print_labelled(
                "whole", f"{plural(result.rows, 'row')} from number {result.first} on, last hash {result.last_hash}"
            )
        else:
            valid = f"{plural(result.rows, 'row')} before it hold"
            print_labelled("broken", f"row {result.broken}: {result.fault}; {valid}")
        for table in result.tables:
            print_labelled("broken", f"{table}: rows were changed by another program")
    if not result.is_intact:
        raise typer.Exit(1)


def _looked(jobs: str | None, since: str | None, most: int) -> RowQuery:
    ids = None
    if jobs is not None:
        try:
            ids = tuple(int(word) for word in jobs.split(","))
        except ValueError as err:
            raise OptionsError(f"-j {jobs!r}: give job ids, separated by commas") from err
    return RowQuery(job_ids=ids, since=0.0 if since is None else instant_of(since, SystemClock().now()), most=most)


def _rows(held: SqliteJournal, view: View, looked: RowQuery) -> list[Row]:
    """Return the rows of a view as published."""
    match view:
        case View.LEASES:
            return _lease_rows(held.leases(), looked)
        case View.CYCLES:
            return [asdict(cycle) for cycle in held.cycles(looked)]
        case View.CHANGES:
            changes = held.changes(looked)
            owners = _owners(held, {change.job_id for change in changes})
            return [
                {
                    "time": change.time,
                    "cycle_id": change.cycle_id,
                    "job_id": change.job_id,
                    "lever": change.lever,
                    "done": str(change.done),
                    "before": asdict(change.action)["before"],
                    "after": asdict(change.action)["after"],
                    "said": change.said,
                    **dict(zip(("user", "account"), owners.get(change.job_id, ("", "")), strict=True)),
                    "job_ids": [change.job_id] if isinstance(change.action, PastStop) else job_ids(change.action),
                }
                for change in changes
            ]
        case View.AUDIT | View.VERIFY:
            return [asdict(row) for row in held.audit(looked.since, looked.most)]


def _owners(held: SqliteJournal, job_ids: Collection[int]) -> Mapping[int, tuple[str, str]]:
    """Map jobs to their user and account, as far as a change of them was sent."""
    leases = [*held.closed(job_ids), *held.leases()] if job_ids else []
    return {lease.job_id: (lease.user, lease.account) for lease in leases}


def _lease_rows(open_leases: Iterable[Lease], looked: RowQuery) -> list[Row]:
    leases = [
        lease
        for lease in open_leases
        if (looked.job_ids is None or lease.job_id in looked.job_ids) and lease.applied_time > looked.since
    ]
    newest = sorted(leases, key=lambda lease: (-lease.applied_time, lease.job_id, lease.lever))
    return [
        {
            "job_id": lease.job_id,
            "lever": str(lease.lever),
            "state": str(lease.state),
            **_values(asdict(lease.action), asdict(lease.undo)),
            "user": lease.user,
            "account": lease.account,
            "applied_time": lease.applied_time,
            "due_time": lease.due_time,
            "added_delay_s": lease.added_delay_s,
            "job_ids": job_ids(lease.action),
        }
        for lease in newest[: looked.most]
    ]


def _disclosed(path: Path, runtime_folder: Path, view: View) -> Disclosure:
    """Return what the daemon shows of a closed journal; raises `JournalError` for other views than the leases."""
    closed = f"{path} is closed to this user"
    if view is not View.LEASES:
        raise JournalError(f"{closed}: run as root or as its owner; `sadvise journal` shows what is in effect")
    try:
        return asked(runtime_folder)
    except JournalError as err:
        raise JournalError(f"{closed}, and {err}") from err


def _values(action: Published, undo: Published) -> Row:
    """Return the user's value and the current one."""
    return {"before": undo["after"], "after": action["after"]}


_AUDIT: Final = ("number", "time", "event", "detail")
_COLUMNS: Final[Mapping[View, Sequence[str]]] = {
    View.LEASES: (
        "job_id", "lever", "state", "before", "after", "user", "account", "applied_time", "due_time", "added_delay_s",
        "job_ids",
    ),
    View.CYCLES: (
        "cycle_id", "taken_at", "pending", "proposed", "recommended", "left_alone", "applied", "held_back",
        "record_bytes", "digest", "note",
    ),
    View.CHANGES: (
        "time", "cycle_id", "job_id", "lever", "done", "before", "after", "said", "user", "account", "job_ids",
    ),
    View.AUDIT: _AUDIT,
    View.VERIFY: _AUDIT,
}  # fmt: skip
_TIMES: Final = ("time", "taken_at", "applied_time", "due_time")
# What a narrow terminal never cuts, and what it leaves out first.
_WHOLE: Final = (
    "job_id", "job_ids", "lever", "state", "done", "cycle_id", "number", *_TIMES, "pending", "proposed", "recommended",
    "applied",
)  # fmt: skip
_OMISSIBLE: Final[Mapping[View, tuple[str, ...]]] = {
    View.LEASES: ("job_ids", "added_delay_s", "account", "before"),
    View.CYCLES: ("digest", "record_bytes", "held_back", "left_alone"),
    View.CHANGES: ("job_ids", "account", "cycle_id", "user", "before"),
}


def _field(name: str, value: Any, when: Callable[[float], str]) -> str:
    """Return a value of a column for people."""
    match name:
        case "job_ids":
            return ",".join(map(str, value))
        case "digest":
            return str(value)[:12]
        case "added_delay_s":
            return f"{value:.0f}"
        case _ if name in _TIMES and value is not None:
            return when(value)
        case _:
            return _spelled(value)


def _spelled(value: object) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return json.dumps(value, separators=(",", ":"))
