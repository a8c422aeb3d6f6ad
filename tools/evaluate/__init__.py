"""Judges predictors for `python -m tools.evaluate`, one module for each."""
