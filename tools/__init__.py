"""Offline programs, run as `python -m tools.<name>` from a checkout; never installed."""
