"""`sadvise recommend`: one dry-run cycle."""

from typing import Annotated

import typer

from advisor.cli.options import (
    OUTPUT,
    Accounts,
    Cluster,
    ConfigFile,
    Demo,
    Format,
    Jobs,
    JournalFile,
    Json,
    Nodes,
    NoHeader,
    Parsable,
    Partitions,
    SnapshotFile,
    Source,
    Timeout,
    Users,
)


def recommend(
    snapshot: SnapshotFile = None,
    demo: Demo = False,
    source: Source = None,
    cluster: Cluster = None,
    timeout: Timeout = None,
    config: ConfigFile = None,
    journal: JournalFile = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="NAME[@VERSION]",
            help="Choose with this learned policy, of the site or the package; default: the rules.",
        ),
    ] = None,
    rollout: Annotated[
        bool,
        typer.Option(
            "--rollout",
            help="Simulate the next 12 h with and without the plan, and print what it and each change gain.",
        ),
    ] = False,
    partitions: Partitions = None,
    users: Users = None,
    accounts: Accounts = None,
    jobs: Jobs = None,
    nodes: Nodes = None,
    json: Json = False,
    parsable: Parsable = False,
    noheader: NoHeader = False,
    format_: Format = None,
    top: Annotated[
        int | None,
        typer.Option("--top", metavar="N", min=1, help="Only the N changes that should save most job completion time."),
    ] = None,
    long: Annotated[
        bool,
        typer.Option(
            "--long",
            help="For each change also why, what its gain rests on, and the commands to apply and revert it.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 3 if there is something to recommend.")
    ] = False,
) -> None:
    """Print which GPU jobs to reorder, resize, consolidate or stop, those that save most first.

    Starts with the state of the cluster, then prints a line for each change. --long adds why, and how to do and undo it
    by hand. Read-only: nothing is changed.
    """
    from advisor.cli.advice import Advice, document, print_advice
    from advisor.cli.filters import job_filter
    from advisor.cli.plan_simulation import trial_of
    from advisor.errors import OptionsError
    from advisor.view.documents import FIELDS
    from advisor.view.terminal import chosen_fields, print_json, print_rows
    from advisor.watch.reading import Reading

    if json and (parsable or format_ is not None):
        raise OptionsError("--json excludes -P and -o: give one")
    wanted = job_filter(partitions, users, accounts, jobs, nodes)
    fields, widths = chosen_fields(format_ or ",".join(FIELDS), list(FIELDS))
    reading = Reading(
        snapshot=snapshot,
        demo=demo,
        source=source,
        cluster=cluster,
        timeout_s=timeout,
        config=config,
        policy=policy,
        tries_plans=True,
    )
    settings = reading.load_config()
    opened = reading.open(settings)
    seen = opened.snapshot()
    planned = reading.plan(settings, journal, seen)
    wanted.check(seen)
    advice = Advice(
        planned=planned,
        settings=settings,
        source=opened.name,
        wanted=wanted,
        top=top,
        named=cluster if snapshot is None and not demo else None,
        policy=policy,
        trial=trial_of(planned.record, settings) if rollout else None,
    )
    if json:
        print_json(document(advice))
    elif parsable or format_ is not None:
        rows = [[FIELDS[field](row) for field in fields] for row in advice.rows]
        print_rows(fields, rows, as_parsable=parsable, noheader=noheader, widths=widths)
    else:
        print_advice(advice, long=long, noheader=noheader)
    if exit_code and advice.rows:
        raise typer.Exit(3)
