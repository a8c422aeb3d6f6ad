"""Tests of advisor.planning."""
