"""Real Slurm clusters of fake GPU nodes, for tests and recordings."""

from tools.stage.live_cluster import LiveCluster, uniform_cluster
from tools.stage.roots import LiveSlurmError

__all__ = ["LiveCluster", "LiveSlurmError", "uniform_cluster"]
