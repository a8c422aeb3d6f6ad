"""`sadvise apply`: one cycle that changes pending jobs."""

from advisor.cli.filters import job_filter
from advisor.cli.options import (
    Accounts,
    Cluster,
    ConfigFile,
    Jobs,
    JournalFile,
    Json,
    Nodes,
    NoHeader,
    Parsable,
    Partitions,
    Source,
    Timeout,
    Users,
)
from advisor.view.documents import SkippedDocument, meta, rules_in_words
from advisor.view.terminal import print_json, print_labelled, print_rows, print_table
from advisor.watch.changes import COLUMNS, FORM, DoneDocument, apply_changes, fields_of
from advisor.watch.reading import Reading

SCHEMA = "sadvise.apply/1"


def apply(
    source: Source = None,
    cluster: Cluster = None,
    timeout: Timeout = None,
    config: ConfigFile = None,
    journal: JournalFile = None,
    partitions: Partitions = None,
    users: Users = None,
    accounts: Accounts = None,
    jobs: Jobs = None,
    nodes: Nodes = None,
    json: Json = False,
    parsable: Parsable = False,
    noheader: NoHeader = False,
) -> None:
    """Revert the changes that are due, then apply the current recommendations in one batch.

    Every change is written to the journal before it is sent and read back after. The filters say which jobs get new
    changes. If the queue cannot be read, or the disk of the journal is full, changes that are due are reverted all the
    same. Exits with 1 then, and if Slurm refused a change.
    """
    wanted = job_filter(partitions, users, accounts, jobs, nodes)
    reading = Reading(source=source, cluster=cluster, timeout_s=timeout, config=config)
    done = apply_changes(reading, journal, wanted)
    if json:
        print_json({"meta": meta(done.seen, SCHEMA, done.source), "changes": done.rows, "skipped": done.left_alone})
    else:
        _print(done.rows, done.left_alone, parsable=parsable, noheader=noheader)
    done.raise_fault()


def _print(changes: list[DoneDocument], left_alone: list[SkippedDocument], *, parsable: bool, noheader: bool) -> None:
    """Print the changes for people or as lines, and for people the rules that left jobs alone."""
    if parsable:
        print_rows(COLUMNS, [fields_of(row) for row in changes], as_parsable=True, noheader=noheader)
        return
    if changes:
        print_table(COLUMNS, [fields_of(row) for row in changes], form=FORM, noheader=noheader)
    else:
        print_labelled("nothing", "to apply and nothing to take back")
    if left_alone:
        print_labelled("left alone", rules_in_words(left_alone), width=12)
