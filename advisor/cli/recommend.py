"""`sadvise recommend`: one dry-run cycle."""

from typing import Annotated

import typer

from advisor.cli.cluster_advice import (
    AdviceRequest,
    exit_status,
    print_answers,
    print_documents,
    print_faults,
    print_fields,
)
from advisor.cli.filters import job_filter
from advisor.cli.options import (
    OUTPUT,
    Accounts,
    Clusters,
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
from advisor.errors import OptionsError
from advisor.view.documents import FIELDS
from advisor.view.terminal import chosen_fields
from advisor.watch.clusters import check_one_journal, readings_of
from advisor.watch.reading import Reading


def recommend(
    snapshot: SnapshotFile = None,
    demo: Demo = False,
    source: Source = None,
    cluster: Clusters = None,
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
    by hand. Read-only: nothing is changed. Of several clusters (-M all), it prints the advice for each under its name;
    filters and --top apply to each. Exits with 1 if one of them cannot be read.
    """
    if json and (parsable or format_ is not None):
        raise OptionsError("--json excludes -P and -o: give one")
    wanted = job_filter(partitions, users, accounts, jobs, nodes)
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
    readings = readings_of(reading)
    check_one_journal(readings, journal)
    usual = FIELDS if len(readings) == 1 else ("cluster", *FIELDS)
    fields, widths = chosen_fields(format_ or ",".join(usual), [*FIELDS, "cluster"])
    request = AdviceRequest(journal=journal, wanted=wanted, top=top, policy=policy, has_trial=rollout)
    answers = request.answers(readings)
    if json:
        print_documents(answers)
    elif parsable or format_ is not None:
        print_fields(answers, fields, widths, is_parsable=parsable, noheader=noheader)
    else:
        print_answers(answers, long=long, noheader=noheader)
    print_faults(answers)
    if status := exit_status(answers, tells=exit_code):
        raise typer.Exit(status)
