"""Tests of the readers, the decoders and snapshot files."""
