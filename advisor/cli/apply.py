"""`sadvise apply`: one cycle that changes pending jobs."""

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
    changes. Exits with 1 if Slurm refused one.
    """
    from advisor.cli.changes import (
        COLUMNS,
        fields_of,
        live_applier,
        put_off_row,
        raise_if_refused,
        receipt_row,
        reconciled_rows,
        refused_row,
    )
    from advisor.cli.filters import job_filter
    from advisor.cli.reading import Reading
    from advisor.errors import ConfigError
    from advisor.view.documents import meta, skipped, skipped_by_rule
    from advisor.view.terminal import print_json, print_labelled, print_rows, print_table

    if json and parsable:
        raise ConfigError("--json excludes -P: give one")
    wanted = job_filter(partitions, users, accounts, jobs, nodes)
    reading = Reading(source=source, cluster=cluster, timeout_s=timeout, config=config)
    with live_applier(reading, journal, wanted.keeps) as applier:
        seen = applier.source.snapshot()
        wanted.check(seen)
        step = applier.step(seen)
        name = applier.source.name
    record = step.record
    done = [
        *reconciled_rows(step.reconciled, cluster),
        *(receipt_row("applied", receipt, cluster) for receipt in step.applied),
        *(put_off_row("held_back", change, cluster) for change in step.held_back),
        *(refused_row(change, cluster) for change in record.judged if change.refused_by is not None),
    ]
    left_alone = skipped(record)
    if json:
        print_json({"meta": meta(record.snapshot, SCHEMA, name), "changes": done, "skipped": left_alone})
    elif parsable:
        print_rows(COLUMNS, [fields_of(row) for row in done], as_parsable=True, noheader=noheader)
    elif done:
        print_table(COLUMNS, [fields_of(row) for row in done], noheader=noheader)
    else:
        print_labelled("nothing", "to apply and nothing to take back")
    if left_alone and not (json or parsable):
        counts = ", ".join(f"{count} {rule}" for rule, count in skipped_by_rule(left_alone).items())
        print_labelled("left alone", counts, width=12)
    raise_if_refused((*step.reconciled.taken_back, *step.applied))
