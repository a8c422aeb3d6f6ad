"""DL2 on Slurm: sizes of elastic pending jobs, learnt on the simulator's model of slurmctld."""
