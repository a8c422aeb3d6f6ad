"""Tests; the folders mirror `advisor/`."""
