"""Snapshot to plan, without clock, files or chance."""
