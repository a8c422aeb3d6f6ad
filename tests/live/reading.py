"""Reads a live cluster in this process, which costs a tenth of a command of its own."""

import pytest

from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.domain.snapshot import Snapshot
from tools.stage import LiveCluster


def taken(live: LiveCluster, reader: str = "auto") -> Snapshot:
    """Take a snapshot as `sadvise snapshot` does, with one of the readers."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PATH", "SLURM_CONF"):
            patch.setenv(name, live.env[name])
        return open_source(reader, cluster=None, timeout_s=30.0, clock=SystemClock()).snapshot()
