"""`sadvise apply`: one cycle that changes pending jobs."""

from advisor.cli.filters import Wanted
from advisor.cli.options import Form, JournalFile
from advisor.cli.reading_options import LiveQueue
from advisor.view.documents import meta, rules_in_words
from advisor.view.terminal import print_labelled
from advisor.watch.changes import COLUMNS, FORM, apply_changes, fields_of

SCHEMA = "sadvise.apply/1"


def apply(*, reading: LiveQueue, journal: JournalFile = None, wanted: Wanted, output: Form) -> None:
    """Revert the changes that are due, then apply the current recommendations in one batch.

    Every change is written to the journal before it is sent and read back after. The filters say which jobs get new
    changes. If the queue cannot be read, or the disk of the journal is full, changes that are due are reverted all the
    same. Exits with 1 then, and if Slurm refused a change.
    """
    done = apply_changes(reading, journal, wanted)
    rows = [fields_of(row) for row in done.rows]
    document = {"meta": meta(done.seen, SCHEMA, done.source), "changes": done.rows, "skipped": done.left_alone}
    if rows or not output.is_for_people:
        output.show(document, COLUMNS, rows, form=FORM)
    else:
        print_labelled("nothing", "to apply and nothing to take back")
    if done.left_alone and output.is_for_people:
        print_labelled("left alone", rules_in_words(done.left_alone), width=12)
    done.raise_fault()
