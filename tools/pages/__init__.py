"""Experiments of docs/, each described in a TOML file: `python -m tools.pages NAME`."""
