"""The present state of clusters for people: reads and plans as `recommend` does, for commands and live views."""
