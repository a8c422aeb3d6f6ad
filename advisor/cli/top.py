"""`sadvise top`: the live view in a terminal."""

import os
import sys
from typing import Annotated

import typer

from advisor.cli.options import Clusters, ConfigFile, Demo, JournalFile, SnapshotFile, Source, Timeout
from advisor.errors import OptionsError
from advisor.top.live_view import LiveView
from advisor.watch.clusters import watched_clusters
from advisor.watch.departure import leave
from advisor.watch.reading import Reading


def top(
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=5.0, help="How often the cluster is read.")
    ] = 30.0,
    snapshot: SnapshotFile = None,
    demo: Demo = False,
    source: Source = None,
    cluster: Clusters = None,
    timeout: Timeout = None,
    config: ConfigFile = None,
    journal: JournalFile = None,
) -> None:
    """Show the cluster live: GPUs, the line with forecast starts, the advice, and which changes are in effect.

    The keys stand below: explain a job, apply a recommendation, revert, pause the daemon. What changes something asks
    first, shows the command that does the same, and does it as that command does. Needs a terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") in (None, "", "dumb"):
        raise OptionsError("top needs a terminal: use `sadvise recommend` or `sadvise status` where there is none")
    reading = Reading(
        snapshot=snapshot,
        demo=demo,
        source=source,
        cluster=cluster,
        timeout_s=timeout,
        config=config,
        tries_plans=True,
    )
    clusters = watched_clusters(reading, journal=journal, max_age_s=interval)

    error = LiveView(clusters, interval_s=interval).run()
    if error is not None:
        raise error
    leave()
