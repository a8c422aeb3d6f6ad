"""Asks the accounting of a site for its past jobs, which takes longer and answers with more than other commands do."""

from pathlib import Path
from typing import Final

from advisor.backends.process import SlurmCommands
from advisor.cli.options import LIVE
from advisor.sim.traces.trace import Trace

_TIMEOUT_S: Final = 600.0
_LIMIT_BYTES: Final = 1 << 30


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
