"""Traces: the jobs of a workload, their files and the formats that are imported."""
