"""`sadvise recommend`: one dry-run cycle."""

from dataclasses import replace
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
from advisor.cli.filters import Wanted
from advisor.cli.options import OUTPUT, Form, JournalFile, option
from advisor.cli.reading_options import SeveralQueues
from advisor.errors import OptionsError
from advisor.view.documents import FIELDS
from advisor.view.terminal import chosen_fields
from advisor.watch.clusters import check_one_journal, readings_of


def recommend(
    *,
    reading: SeveralQueues,
    journal: JournalFile = None,
    policy: Annotated[
        str | None,
        option(
            "--policy NAME[@VERSION]",
            "Choose with this learned policy, of the site or the package; default: the rules.",
        ),
    ] = None,
    rollout: Annotated[
        bool,
        option(
            "--rollout", "Simulate the next 12 h with and without the plan, and print what it and each change gain."
        ),
    ] = False,
    wanted: Wanted,
    output: Form,
    format_: Annotated[
        str | None,
        option(
            "-o --format FIELDS",
            "Fields as a comma separated list, each with an optional width: job_id,kind:12,text.",
            OUTPUT,
        ),
    ] = None,
    top: Annotated[
        int | None, option("--top N", "Only the N changes that should save most job completion time.", min=1)
    ] = None,
    long: Annotated[
        bool,
        option(
            "--long",
            "For each change also why, what its gain rests on, and the commands to apply and revert it.",
            OUTPUT,
        ),
    ] = False,
    exit_code: Annotated[bool, option("--exit-code", "Exit with 3 if there is something to recommend.")] = False,
) -> None:
    """Print which GPU jobs to reorder, resize, consolidate or stop, those that save most first.

    Starts with the state of the cluster, then prints a line for each change. --long adds why, and how to do and undo it
    by hand. Read-only: nothing is changed. Of several clusters (-M all), it prints the advice for each under its name;
    filters and --top apply to each. Exits with 1 if one of them cannot be read, or if no queue has a job of a user or
    an account, or a job, that is named.
    """
    if output.json and (output.parsable or format_ is not None):
        raise OptionsError("--json excludes -P and -o: give one")
    readings = readings_of(replace(reading, policy=policy, tries_plans=True))
    check_one_journal(readings, journal)
    usual = FIELDS if len(readings) == 1 else ("cluster", *FIELDS)
    fields, widths = chosen_fields(format_ or ",".join(usual), [*FIELDS, "cluster"])
    request = AdviceRequest(journal=journal, wanted=wanted, top=top, policy=policy, has_trial=rollout)
    answers = request.answers(readings)
    if output.json:
        print_documents(answers)
    elif output.parsable or format_ is not None:
        print_fields(answers, fields, widths, output)
    else:
        print_answers(answers, long=long, noheader=output.noheader)
    print_faults(answers)
    if status := exit_status(answers, tells=exit_code):
        raise typer.Exit(status)
