"""Judges plans: one function per rule, one table of rules."""
