"""Real Slurm clusters of fake GPU nodes, for tests and recordings."""

from tools.live_slurm.cluster import LiveCluster
from tools.live_slurm.errors import LiveSlurmError

__all__ = ["LiveCluster", "LiveSlurmError"]
