"""Tests of tools.live."""
