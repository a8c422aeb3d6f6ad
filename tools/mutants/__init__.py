"""Measure what the tests catch: put single faults into a copy of the code and run the related tests on each."""
