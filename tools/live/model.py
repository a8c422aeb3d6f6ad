"""Reads how a live cluster is modelled: the cluster of its own snapshot, as `sadvise simulate --cluster live` does."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from advisor.backends.process import SlurmCommands
from advisor.backends.queue_limits import read_queue_limits
from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.sim.slurm.site_cluster import SiteCluster, site_cluster
from tools.stage import LiveCluster

_TIMEOUT_S: Final = 60.0


def model_of(live: LiveCluster) -> SiteCluster:
    """Return the model of a cluster that runs, with plain sentences on what is not in it."""
    with _environment(live.env):
        seen = open_source("text", cluster=None, timeout_s=_TIMEOUT_S, clock=SystemClock()).snapshot()
        limits = read_queue_limits(SlurmCommands(timeout_s=_TIMEOUT_S), seen.config)
    return site_cluster(seen, limits)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Let Slurm's commands talk to another cluster for a block; nothing else may run meanwhile."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
