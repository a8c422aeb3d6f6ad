"""How close the model of slurmctld comes to a real one: a recorded workload, its replay and the comparison."""
