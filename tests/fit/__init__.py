"""Tests of advisor.fit."""
