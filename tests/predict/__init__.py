"""Tests of advisor.predict."""
