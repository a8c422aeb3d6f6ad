"""`sadvise snapshot`: save the state of the cluster to a file."""

from pathlib import Path
from typing import Annotated

import typer

from advisor.backends.anonymise import anonymise as anonymised
from advisor.backends.snapshot_file import write_snapshot
from advisor.cli.options import AnyQueue, option
from advisor.domain.units import plural
from advisor.files import STANDARD_STREAM
from advisor.watch.reading import open_queue


def snapshot(
    *,
    output: Annotated[Path, option("-o --output FILE", "Output file; - is standard output, .gz compresses.")],
    anonymise: Annotated[
        bool, option("--anonymise", "Replace users, accounts, names, comments and node names consistently.")
    ] = False,
    reading: AnyQueue,
) -> None:
    """Write the state of the cluster to a file that every reading command takes with --snapshot.

    At most four read requests to slurmctld. The schema is in docs/snapshot.schema.json.
    """
    seen = open_queue(reading, reading.load_config()).snapshot()
    if anonymise:
        seen = anonymised(seen)
    write_snapshot(seen, output)
    if output != STANDARD_STREAM:
        typer.echo(f"{output}: {plural(len(seen.jobs), 'job')} on {plural(len(seen.nodes), 'node')}", err=True)
