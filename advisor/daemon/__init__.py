"""Runs the daemon: consecutive rounds of the cycle, with the checks that keep them safe."""
