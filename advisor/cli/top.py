"""`sadvise top`: the live view in a terminal."""

import os
import sys
from dataclasses import replace
from typing import Annotated

from advisor.cli.options import JournalFile, SeveralQueues, option
from advisor.errors import OptionsError
from advisor.top.live_view import LiveView
from advisor.watch.clusters import leave, watched_clusters


def top(
    *,
    interval: Annotated[float, option("--interval SECONDS", "How often the cluster is read.", min=5.0)] = 30.0,
    reading: SeveralQueues,
    journal: JournalFile = None,
) -> None:
    """Show the cluster live: GPUs, the line with forecast starts, the advice, and which changes are in effect.

    The keys stand below: explain a job, apply a recommendation, revert, pause the daemon. What changes something asks
    first, shows the command that does the same, and does it as that command does. Needs a terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") in (None, "", "dumb"):
        raise OptionsError("top needs a terminal: use `sadvise recommend` or `sadvise status` where there is none")
    clusters = watched_clusters(replace(reading, tries_plans=True), journal=journal, max_age_s=interval)

    error = LiveView(clusters, interval_s=interval).run()
    if error is not None:
        raise error
    leave()
