"""Builds the .deb and the .rpm: a virtual environment under /opt/sadvise, the unit, and what stands around them."""
