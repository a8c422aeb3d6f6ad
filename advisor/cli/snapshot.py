"""`sadvise snapshot`: save the state of the cluster to a file."""

from pathlib import Path
from typing import Annotated

import typer

from advisor.backends.anonymise import anonymise as anonymised
from advisor.backends.snapshot_file import write_snapshot
from advisor.cli.options import Cluster, ConfigFile, Demo, SnapshotFile, Source, Timeout
from advisor.domain.units import plural
from advisor.files import STANDARD_STREAM
from advisor.watch.queue_source import open_queue
from advisor.watch.reading import Reading


def snapshot(
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="Output file; - is standard output, .gz compresses."),
    ],
    anonymise: Annotated[
        bool,
        typer.Option("--anonymise", help="Replace users, accounts, names, comments and node names consistently."),
    ] = False,
    snapshot_file: SnapshotFile = None,
    demo: Demo = False,
    source: Source = None,
    cluster: Cluster = None,
    timeout: Timeout = None,
    config: ConfigFile = None,
) -> None:
    """Write the state of the cluster to a file that every reading command takes with --snapshot.

    At most four read requests to slurmctld. The schema is in docs/snapshot.schema.json.
    """
    reading = Reading(
        snapshot=snapshot_file, demo=demo, source=source, cluster=cluster, timeout_s=timeout, config=config
    )
    seen = open_queue(reading, reading.load_config()).snapshot()
    if anonymise:
        seen = anonymised(seen)
    write_snapshot(seen, output)
    if output != STANDARD_STREAM:
        typer.echo(f"{output}: {plural(len(seen.jobs), 'job')} on {plural(len(seen.nodes), 'node')}", err=True)
