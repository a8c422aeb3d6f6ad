"""Tests of advisor.features."""
