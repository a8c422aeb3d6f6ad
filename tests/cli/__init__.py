"""Tests of advisor.cli."""
