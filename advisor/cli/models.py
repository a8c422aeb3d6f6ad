"""`sadvise models`: list, verify and choose the models of the forecasts."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.options import ConfigFile, Form, JournalFile, Json, NoHeader, group, option, shared
from advisor.errors import ModelError
from advisor.predict.forecaster import checked
from advisor.predict.library import SITE_FOLDER, Held, Library, read_card
from advisor.text import escaped
from advisor.view.table_layout import TableForm
from advisor.view.terminal import Output, instant, print_json, print_labelled, tool_meta

if TYPE_CHECKING:
    from advisor.domain.probation import OrderLook
    from advisor.site.status_file import DaemonStatus

app = group("List, check, compare and choose models and learned policies.")

SCHEMA = "sadvise.models/1"
_HEADER = ("kind", "version", "in use", "from", "fitted", "parity", "sound")
# What a narrow terminal leaves out first.
_LESS = ("parity", "fitted")

Folder = Annotated[Path | None, shared("--models DIR", "The site's models, instead of /var/lib/sadvise/models.")]
Kind = Annotated[
    str,
    typer.Argument(metavar="KIND", help="run_time, start_time, throughput, interference, performance or policy-NAME."),
]


def library(folder: Path | None) -> Library:
    """Return the library of models."""
    return Library(SITE_FOLDER if folder is None else folder)


@app.command()
def compare(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="policy-NAME.")],
    a: Annotated[str, typer.Argument(metavar="A", help="A version, as `sadvise models list` shows it, or rules.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another version, or rules.")],
    cycles: Annotated[int, option("--cycles N", "Compare the last N recorded cycles.", min=1)] = 20,
    rollout: Annotated[
        bool,
        option("--rollout", "Simulate 12 h after up to 10 of their snapshots under the plan of each."),
    ] = False,
    journal: JournalFile = None,
    config: ConfigFile = None,
    models: Annotated[Path | None, shared("--models DIR", "The site's models, instead of forecasts.models.")] = None,
    json: Json = False,
    noheader: NoHeader = False,
) -> None:
    """Compare two versions of a policy, or one and the rules.

    Plans recorded cycles of the journal again with both. Where a policy names nodes by a performance model, shows what
    that expects of them against the nodes on which the gangs started. Changes nothing, and puts neither in use.
    """
    # What plans and simulates is no part of the other commands.
    from advisor.cli.model_comparison import compare_versions
    from advisor.watch.reading import Reading, journal_file

    settings = Reading(config=config).load_config()
    held = Library(Path(settings.forecasts.models) if models is None else models)
    output = Output(json=json, noheader=noheader)
    path = journal_file(settings, journal)
    compare_versions(kind, (a, b), cycles=cycles, rollout=rollout, journal=path, library=held, output=output)


@app.command("list")
def list_(*, models: Folder = None, output: Form) -> None:
    """Print every model, whether it ships or was fitted here, and which one of each kind is in use, and why."""
    held, seen = library(models).held(), _last_round()
    documents = [{**_document(artefact), **_shown_here(artefact, seen)} for artefact in held]
    document = {"meta": tool_meta(SCHEMA), "models": documents}
    output.show(document, _HEADER[:-1], [_row(artefact) for artefact in held], form=TableForm(omissible=_LESS))
    for artefact in held if output.is_for_people else ():
        for line in _lines(artefact, seen) if artefact.in_use else ():
            print_labelled(artefact.name, line)


@app.command()
def show(
    kind: Kind,
    version: Annotated[
        str | None, typer.Argument(metavar="[VERSION]", help="Its version; by default the one in use.")
    ] = None,
    models: Folder = None,
    json: Json = False,
) -> None:
    """Print the card of a model: what it was fitted on, how well it did on other rows, what it is made of."""
    held = library(models).find(kind, version)
    if json:
        print_json({"meta": tool_meta(SCHEMA), "model": _document(held)})
        return
    for line in read_card(held).splitlines():
        sys.stdout.write(escaped(line) + "\n")


@app.command()
def verify(*, models: Folder = None, output: Form) -> None:
    """Open every model and compare digests and fingerprints; exit with 1 if one is invalid."""
    rows, documents, faults = [], [], 0
    for artefact in library(models).held():
        try:
            checked(artefact)
            fault = ""
        except ModelError as err:
            fault, faults = str(err), faults + 1
        rows.append([*_row(artefact), fault or "yes"])
        documents.append({**_document(artefact), "sound": not fault, "fault": fault or None})
    form = TableForm(folded=("sound",), omissible=_LESS)
    output.show({"meta": tool_meta(SCHEMA), "models": documents}, _HEADER, rows, form=form)
    if faults:
        raise typer.Exit(1)


@app.command()
def use(
    kind: Kind,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="As `sadvise models list` shows it.")],
    models: Folder = None,
) -> None:
    """Put a version in use if it is valid, from the next cycle on."""
    library(models).use(kind, version)
    typer.echo(f"{kind}: {version} is in use")


@app.command()
def rollback(kind: Kind, models: Folder = None) -> None:
    """Put the previous version back in use."""
    version = library(models).rollback(kind)
    typer.echo(f"{kind}: {version} is in use")


def _last_round() -> "DaemonStatus | None":
    """Return the last round of the daemon; None where none runs, or its files or the configuration cannot be read."""
    import os

    from advisor.config import load_config
    from advisor.errors import ConfigError
    from advisor.site.status_file import read_status

    try:
        return read_status(Path(load_config(None, os.environ).daemon.runtime_folder))
    except ConfigError:
        return None  # `sadvise status` says why


def _shown_here(held: Held, seen: "DaemonStatus | None") -> dict[str, object]:
    """Return what jobs of this site showed a daemon of a run-time model: its order, and why it is set aside."""
    look = _look(held, seen)
    return {
        "order": look,
        "set_aside": None if seen is None or not held.in_use else seen.on_probation.get(held.name),
    }


def _look(held: Held, seen: "DaemonStatus | None") -> "OrderLook | None":
    look = None if seen is None else seen.run_time_order
    return look if look is not None and look.model == held.name else None


def _lines(held: Held, seen: "DaemonStatus | None") -> Iterator[str]:
    """Yield why a model in use is served, and what the daemon found of it here."""
    if held.entry.reason:
        yield held.entry.reason
    look, aside = _look(held, seen), None if seen is None else seen.on_probation.get(held.name)
    if aside is not None:
        yield aside.removeprefix(f"{held.name} ")
    elif look is not None:
        yield f"{look.order.words}, at {instant(look.looked_time)}"


def _row(held: Held) -> list[str]:
    entry = held.entry
    return [
        entry.kind,
        entry.version,
        "yes" if held.in_use else "",
        "package" if held.shipped else str(held.folder),
        entry.fitted,
        f"{entry.parity.max_error:.1g}",
    ]


def _document(held: Held) -> dict[str, object]:
    return {
        **held.entry.model_dump(mode="json"),
        "in_use": held.in_use,
        "shipped": held.shipped,
        "folder": str(held.files),
    }
