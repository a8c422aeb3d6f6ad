"""`sadvise revert`: revert applied changes."""

from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.options import Cluster, ConfigFile, JournalFile, Json, NoHeader, Parsable, Source, Timeout

if TYPE_CHECKING:
    from advisor.apply.step import Reconciled
    from advisor.domain.lease import Lease
    from advisor.domain.snapshot import Snapshot

SCHEMA = "sadvise.revert/1"
UNSETTLED = "it can still take effect: run this again in a few minutes"


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
    from advisor.backends.actuator import CHANGED_MEANWHILE
    from advisor.cli.changes import COLUMNS, fields_of, lease_row, live_applier, raise_if_refused, receipt_row
    from advisor.domain.lease import LeaseState
    from advisor.errors import ConfigError, JournalFullError
    from advisor.view.documents import meta
    from advisor.view.terminal import print_json, print_labelled, print_rows, print_table
    from advisor.watch.reading import Reading

    if bool(jobs) == every:
        raise ConfigError("name the jobs whose changes are to be reverted, or give --all")
    if json and parsable:
        raise ConfigError("--json excludes -P: give one")
    named = None if every else frozenset(jobs or ())
    reading = Reading(source=source, cluster=cluster, timeout_s=timeout, config=config)

    def reverted(*, full: bool) -> "tuple[Snapshot, Reconciled, list[Lease]]":
        with live_applier(reading, journal, gated=False, full=full) as applier:
            seen = applier.leased()
            reconciled = applier.revert(seen, named)
            left = [lease for lease in applier.journal.leases() if named is None or lease.job_id in named]
            return seen, reconciled, left

    try:
        seen, reconciled, left = reverted(full=False)
    except JournalFullError:
        seen, reconciled, left = reverted(full=True)
    done = [
        *(receipt_row("taken_back", receipt, cluster) for receipt in reconciled.taken_back),
        *(
            lease_row("hands_off", lease, CHANGED_MEANWHILE, cluster)
            for lease in left
            if lease.state is LeaseState.HANDS_OFF
        ),
        *(lease_row("unsettled", lease, UNSETTLED, cluster) for lease in left if lease.state is LeaseState.INTENDED),
    ]
    if json:
        print_json({"meta": meta(seen, SCHEMA, seen.source), "changes": done})
    elif parsable:
        print_rows(COLUMNS, [fields_of(row) for row in done], as_parsable=True, noheader=noheader)
    elif done:
        print_table(COLUMNS, [fields_of(row) for row in done], noheader=noheader)
        print_labelled("next", _next(reading.load_config().breakers.max_objections))
    else:
        print_labelled("nothing", "of ours is out on these jobs" if named else "of ours is out")
    raise_if_refused(reconciled.taken_back)


def _next(most: int) -> str:
    """Say what a daemon does after its changes were reverted by hand."""
    return (
        f"a daemon in mode apply leaves these jobs alone, and applies nothing once changes to more than {most} jobs "
        "were reverted (breakers.max_objections), until `sadvise acknowledge people_object`"
    )
