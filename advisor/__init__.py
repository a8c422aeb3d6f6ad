"""A scheduling advisor for Slurm GPU clusters: reorder, resize and consolidate pending jobs."""

__version__ = "0.1.0"
