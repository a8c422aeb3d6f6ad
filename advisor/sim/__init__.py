"""A cluster that answers like Slurm: traces, true run times, a model of slurmctld, policies and studies."""
