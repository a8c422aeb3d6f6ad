"""Reads what commands simulate: the cluster that `--cluster` names, and the accounting of a site."""

import sys
from pathlib import Path
from typing import Final

from advisor.backends.assoc_text import read_queue_limits
from advisor.backends.process import SlurmCommands
from advisor.cli.options import LIVE
from advisor.config import Config
from advisor.errors import OptionsError, SimulationError
from advisor.sim.cluster import Cluster, is_short_form, parse_cluster
from advisor.sim.slurm.site_cluster import site_cluster
from advisor.sim.traces.trace import Trace
from advisor.text import one_line
from advisor.watch.reading import Reading, open_queue

# Accounting takes longer, and answers with more, than other commands do.
_TIMEOUT_S: Final = 600.0
_LIMIT_BYTES: Final = 1 << 30
_SNAPSHOT_ENDS: Final = (".json", ".json.gz")


def accounting_commands(cluster: str | None, timeout_s: float | None) -> SlurmCommands:
    """Return the commands that ask accounting for the jobs of months."""
    return SlurmCommands(
        timeout_s=_TIMEOUT_S if timeout_s is None else timeout_s, cluster=cluster, limit_bytes=_LIMIT_BYTES
    )


def site_trace(since: str, *, skip_bad: bool) -> Trace:
    """Return the GPU jobs in the accounting of this site since a time, as for sacct -S; raises `AdvisorError`."""
    from advisor.sim.traces.importing.formats import import_trace
    from advisor.sim.traces.importing.sacct import asked_rows

    read = asked_rows(accounting_commands(None, None), since=since)
    return import_trace("sacct", Path(LIVE), skip_bad=skip_bad, read=read).trace


def cluster_of(text: str, config: Config) -> Cluster:
    """Return a cluster; note on standard error what of a site is not in it.

    Raises `OptionsError` for a short form that cannot be parsed, another `AdvisorError` for what cannot be read.
    """
    if text != LIVE and not text.endswith(_SNAPSHOT_ENDS):
        try:
            return parse_cluster(text)
        except SimulationError as err:
            if is_short_form(text):
                raise OptionsError(str(err)) from err
            raise
    limits = None
    reading = Reading(snapshot=None if text == LIVE else Path(text))
    seen = open_queue(reading, config).snapshot()
    if text == LIVE:
        limits = read_queue_limits(SlurmCommands(timeout_s=reading.timeout_of(config)), seen.config)
    try:
        site = site_cluster(seen, limits)
    except SimulationError as err:
        raise SimulationError(f"--cluster {text}: {err}") from err
    for note in site.notes:
        sys.stderr.write(f"sadvise: --cluster {one_line(text)}: {one_line(note)}\n")
    return site.cluster
