"""Goldens: what the program decided, one readable file for each plan, simulated run and document.

They hold codes and numbers and no English, which stands in sentences.json alone. Compare with `pytest tests/golden`. A
difference is a bug, or the point of a change that the commit names; then write them again with
`python -m tests.golden.write`.
"""
