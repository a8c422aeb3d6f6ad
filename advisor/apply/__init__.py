"""Applies recommendations to the cluster, and reverts changes that are due."""
