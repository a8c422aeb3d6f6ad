"""The parts of `python -m tools.bench_dally`."""
