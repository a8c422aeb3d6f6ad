"""Tests of the comparison between slurmctld and its model that need no Slurm."""
