"""Importers: how other programs and data sets spell a workload, and one trace made of it; one format per module."""
