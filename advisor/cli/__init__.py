"""The `sadvise` command: one module per command."""
