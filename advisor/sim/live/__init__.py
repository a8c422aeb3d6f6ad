"""Simulations of the present: the twin, and rollouts from a snapshot."""
