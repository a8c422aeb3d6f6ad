"""`sadvise apply` and `sadvise revert`: one cycle that changes pending jobs, and its changes taken back."""

from collections.abc import Sequence
from typing import Annotated

import typer

from advisor.cli.filters import Wanted
from advisor.cli.options import Form, JournalFile, LiveQueue, option
from advisor.errors import OptionsError
from advisor.planning.strays import Stray
from advisor.view.documents import meta, rules_in_words
from advisor.view.terminal import print_labelled
from advisor.watch.changes import (
    COLUMNS,
    FORM,
    apply_changes,
    fields_of,
    revert_changes,
    revert_settings,
    revert_strays,
    stray_documents,
)

APPLY_SCHEMA = "sadvise.apply/1"


def apply(*, reading: LiveQueue, journal: JournalFile = None, wanted: Wanted, output: Form) -> None:
    """Revert the changes that are due, then apply the current recommendations in one batch.

    Every change is written to the journal before it is sent and read back after. The filters say which jobs get new
    changes. If the queue cannot be read, or the disk of the journal is full, changes that are due are reverted all the
    same. Exits with 1 then, and if Slurm refused a change.
    """
    done = apply_changes(reading, journal, wanted)
    rows = [fields_of(row) for row in done.rows]
    document = {"meta": meta(done.seen, APPLY_SCHEMA, done.source), "changes": done.rows, "skipped": done.left_alone}
    if rows or not output.is_for_people:
        output.show(document, COLUMNS, rows, form=FORM)
    else:
        print_labelled("nothing", "to apply and nothing to take back")
    if done.left_alone and output.is_for_people:
        print_labelled("left alone", rules_in_words(done.left_alone), width=12)
    done.raise_fault()


REVERT_SCHEMA = "sadvise.revert/1"


def revert(
    *,
    jobs: Annotated[
        list[int] | None,
        typer.Argument(metavar="[JOBID]...", min=1, help="Ids of the jobs whose changes are reverted."),
    ] = None,
    every: Annotated[bool, option("--all", "Revert every outstanding change.")] = False,
    strays: Annotated[
        bool, option("--strays", "Revert what carries the mark of sadvise and the journal does not know.")
    ] = False,
    settings: Annotated[
        bool, option("--settings", "Return to the configured settings where the daemon took up others by itself.")
    ] = False,
    reading: LiveQueue,
    journal: JournalFile = None,
    output: Form,
) -> None:
    """Revert applied changes, due or not, if the pending job still holds the value that sadvise set.

    Fields that somebody else has changed since are left alone and listed. This works when the queue as a whole cannot
    be read. After a loss of the journal, changes that it does not know are named, and reverted with --strays: the nice
    of every pending job whose nice is below 0 and carries the mark, or of the jobs JOBID, to that of their submit line,
    or 0. Exits with 1 if Slurm refused a revert, or lifts are left that the journal does not know. With --settings no
    job is changed, and the daemon takes note in its next round.
    """
    if settings:
        if jobs or every or strays or not output.is_for_people:
            raise OptionsError("--settings is given alone")
        print_labelled("settings", revert_settings(reading, journal))
        return
    if every and strays:
        raise OptionsError("--all and --strays exclude each other: give one")
    if bool(jobs) == every and not strays:
        raise OptionsError("name the jobs whose changes are to be reverted, or give --all")
    named = frozenset(jobs) if jobs else None
    done = (revert_strays if strays else revert_changes)(reading, journal, named)
    rows = [fields_of(row) for row in done.rows]
    strays_found = stray_documents(done.strays)
    document = {"meta": meta(done.seen, REVERT_SCHEMA, done.source), "changes": done.rows, "strays": strays_found}
    if rows or not output.is_for_people:
        output.show(document, COLUMNS, rows, form=FORM)
    elif not done.strays:
        print_labelled("nothing", "of ours is out on these jobs" if named else "of ours is out")
    if output.is_for_people:
        if rows and not strays:
            print_labelled("next", _next(reading.load_config().breakers.max_objections))
        _print_strays(done.strays, {row.job_id for row in done.rows})
    done.raise_fault()


def _print_strays(found: Sequence[Stray] | None, done: set[int]) -> None:
    """Print the changes that the journal does not know, or that they were not looked for."""
    if found is None:
        print_labelled("strays", "not looked for: the queue cannot be read")
    for stray in found or ():
        if stray.job_id not in done:
            print_labelled("stray", f"job {stray.job_id}: {stray.text}; the journal knows no change of it")


def _next(most: int) -> str:
    """Say what a daemon does after its changes were reverted by hand."""
    return (
        f"a daemon in mode apply leaves these jobs alone, and applies nothing once changes to more than {most} jobs "
        "were reverted (breakers.max_objections), until `sadvise acknowledge people_object`"
    )
