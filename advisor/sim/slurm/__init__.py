"""The model of slurmctld: its settings, limits, queue and passes."""
