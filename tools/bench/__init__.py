"""Benchmarks and checks of the program: `python -m tools.bench NAME`."""
