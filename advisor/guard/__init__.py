"""Plan to verdicts: one rule per function, one table of rules."""
