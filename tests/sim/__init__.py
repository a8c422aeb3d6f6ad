"""Tests of advisor.sim."""
