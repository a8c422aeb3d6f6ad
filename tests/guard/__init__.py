"""Tests of advisor.guard."""
