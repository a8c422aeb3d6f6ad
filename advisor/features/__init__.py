"""Snapshot to arrays; shared by the daemon, the simulator and the trainers."""
