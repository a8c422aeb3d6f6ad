"""Judges plans: one rule per function, one table of rules."""
