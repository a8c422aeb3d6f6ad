"""Compares the model of slurmctld with a real one: a recorded workload, its replay and the comparison."""
