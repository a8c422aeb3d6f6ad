"""`sadvise revert`: revert applied changes."""

from typing import Annotated

import typer

from advisor.cli.options import Cluster, ConfigFile, JournalFile, Json, NoHeader, Parsable, Source, Timeout

SCHEMA = "sadvise.revert/1"


def revert(
    jobs: Annotated[
        list[int] | None,
        typer.Argument(metavar="[JOBID]...", min=1, help="Ids of the jobs whose changes are reverted."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Revert every outstanding change.")] = False,
    source: Source = None,
    cluster: Cluster = None,
    timeout: Timeout = None,
    config: ConfigFile = None,
    journal: JournalFile = None,
    json: Json = False,
    parsable: Parsable = False,
    noheader: NoHeader = False,
) -> None:
    """Revert applied changes, due or not, if the pending job still holds the value that sadvise set.

    Fields that somebody else has changed since are left alone and listed. Only the changed jobs are read, so this works
    when the queue as a whole cannot be read. Exits with 1 if Slurm refused a revert.
    """
    from advisor.errors import OptionsError
    from advisor.view.documents import meta
    from advisor.view.terminal import print_json, print_labelled, print_rows, print_table
    from advisor.watch.changes import COLUMNS, FORM, fields_of, revert_changes
    from advisor.watch.reading import Reading

    if bool(jobs) == every:
        raise OptionsError("name the jobs whose changes are to be reverted, or give --all")
    named = None if every else frozenset(jobs or ())
    reading = Reading(source=source, cluster=cluster, timeout_s=timeout, config=config)
    done = revert_changes(reading, journal, named)
    rows = [fields_of(row) for row in done.rows]
    if json:
        print_json({"meta": meta(done.seen, SCHEMA, done.source), "changes": done.rows})
    elif parsable:
        print_rows(COLUMNS, rows, as_parsable=True, noheader=noheader)
    elif rows:
        print_table(COLUMNS, rows, form=FORM, noheader=noheader)
        print_labelled("next", _next(reading.load_config().breakers.max_objections))
    else:
        print_labelled("nothing", "of ours is out on these jobs" if named else "of ours is out")
    done.raise_fault()


def _next(most: int) -> str:
    """Say what a daemon does after its changes were reverted by hand."""
    return (
        f"a daemon in mode apply leaves these jobs alone, and applies nothing once changes to more than {most} jobs "
        "were reverted (breakers.max_objections), until `sadvise acknowledge people_object`"
    )
