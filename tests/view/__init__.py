"""Tests of advisor.view."""
