"""Writes the man pages from the tree of commands, the settings and a few short texts of their own."""
