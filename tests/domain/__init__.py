"""Tests of advisor.domain."""
