"""Converts snapshots to arrays, for the daemon, the simulator and the trainers."""
