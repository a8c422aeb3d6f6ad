"""`sadvise apply`: one cycle that changes pending jobs."""

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.apply.step import Reconciled
    from advisor.domain.snapshot import Snapshot
    from advisor.errors import AdvisorError
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
    from advisor.cli.changes import (
        live_applier,
        put_off_row,
        raise_if_refused,
        receipt_row,
        reconciled_rows,
        refused_row,
    )
    from advisor.cli.filters import job_filter
    from advisor.errors import AdvisorError, ConfigError, DecodeError, JournalFullError, SlurmError
    from advisor.view.documents import meta, skipped
    from advisor.view.terminal import print_json
    from advisor.watch.reading import Reading

    if json and parsable:
        raise ConfigError("--json excludes -P: give one")
    wanted = job_filter(partitions, users, accounts, jobs, nodes)
    reading = Reading(source=source, cluster=cluster, timeout_s=timeout, config=config)

    def show(
        seen: "Snapshot", name: str, changes: list[dict[str, Any]], left_alone: list[dict[str, Any]] | None = None
    ) -> None:
        if json:
            print_json({"meta": meta(seen, SCHEMA, name), "changes": changes, "skipped": left_alone or []})
        else:
            _print(changes, left_alone or [], parsable=parsable, noheader=noheader)

    try:
        with live_applier(reading, journal, wanted.keeps) as applier:
            seen = applier.source.snapshot()
            wanted.check(seen)
            step = applier.step(seen)
            name = applier.source.name
    except (SlurmError, DecodeError, JournalFullError) as err:
        seen, reconciled = _due_reverted(reading, journal, err)
        show(seen, seen.source, reconciled_rows(reconciled, cluster))
        raise AdvisorError(f"{err}; {_in_words(reconciled)}") from err
    record = step.record
    done = [
        *reconciled_rows(step.reconciled, cluster),
        *(receipt_row("applied", receipt, cluster) for receipt in step.applied),
        *(put_off_row("held_back", change, cluster) for change in step.held_back),
        *(refused_row(change, cluster) for change in record.judged if change.refused_by is not None),
    ]
    show(record.snapshot, name, done, skipped(record))
    raise_if_refused((*step.reconciled.taken_back, *step.applied))


def _due_reverted(reading: "Reading", journal: "Path | None", fault: "AdvisorError") -> "tuple[Snapshot, Reconciled]":
    """Revert what is due without a cycle, which failed; raises the fault if nothing was due."""
    from advisor.apply.step import Reconciled
    from advisor.cli.changes import live_applier
    from advisor.errors import AdvisorError, JournalFullError

    try:
        with live_applier(reading, journal, full=isinstance(fault, JournalFullError)) as applier:
            if not applier.journal.leases():
                raise fault
            seen = applier.leased()
            reconciled = applier.revert_due(seen)
    except AdvisorError as err:
        if err is fault:
            raise
        raise AdvisorError(f"{fault}; what is due, if anything, was not reverted: {err}") from fault
    if reconciled == Reconciled():
        raise fault
    return seen, reconciled


def _in_words(reconciled: "Reconciled") -> str:
    from advisor.domain.plan import Outcome
    from advisor.domain.units import plural

    reverted = sum(1 for receipt in reconciled.taken_back if receipt.outcome is not Outcome.FAILED)
    due = len(reconciled.taken_back) + len(reconciled.put_off)
    return f"reverted {reverted} of {plural(due, 'due change')}"


def _print(changes: list[dict[str, Any]], left_alone: list[dict[str, Any]], *, parsable: bool, noheader: bool) -> None:
    """Print the changes for people or as lines, and for people the rules that left jobs alone."""
    from advisor.cli.changes import COLUMNS, fields_of
    from advisor.view.documents import rules_in_words
    from advisor.view.terminal import print_labelled, print_rows, print_table

    if parsable:
        print_rows(COLUMNS, [fields_of(row) for row in changes], as_parsable=True, noheader=noheader)
        return
    if changes:
        print_table(COLUMNS, [fields_of(row) for row in changes], noheader=noheader)
    else:
        print_labelled("nothing", "to apply and nothing to take back")
    if left_alone:
        print_labelled("left alone", rules_in_words(left_alone), width=12)
