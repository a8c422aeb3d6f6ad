"""Exports the daemon's metrics and its health."""
