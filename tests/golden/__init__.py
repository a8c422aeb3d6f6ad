"""Digests of what the program came to, kept while its inside is rebuilt.

Compare with `pytest tests/golden`. A difference is a bug, or the point of a change that the commit names; then write
them again with `python -m tests.golden.write`.
"""
