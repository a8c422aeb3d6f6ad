"""Reads how a live cluster is modelled: the cluster of its own snapshot, as `sadvise simulate --cluster live` does."""

from advisor.backends.process import SlurmCommands
from advisor.backends.queue_limits import read_queue_limits
from advisor.sim.slurm.site_cluster import SiteCluster, site_cluster
from tools.stage import LiveCluster
from tools.stage.watch import TIMEOUT_S, snapshot_of, talking_to


def model_of(live: LiveCluster) -> SiteCluster:
    """Return the model of a cluster that runs, with plain sentences on what is not in it."""
    seen = snapshot_of(live)
    with talking_to(live):
        limits = read_queue_limits(SlurmCommands(timeout_s=TIMEOUT_S), seen.config)
    return site_cluster(seen, limits)
