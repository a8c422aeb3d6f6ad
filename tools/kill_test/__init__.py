"""Kills the advisor at every write step against a live slurmctld, and checks what the next start finds."""
