"""The live view of clusters in a terminal: what waits, what is advised, and which changes are in effect."""
