"""Defines the values of the field: jobs, gangs, nodes, topology, plans; standard library only."""
