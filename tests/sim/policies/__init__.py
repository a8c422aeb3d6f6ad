"""Tests of advisor.sim.policies."""
