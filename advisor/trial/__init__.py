"""Experiments: what follows jobs from snapshot to snapshot, and what their outcomes show."""
