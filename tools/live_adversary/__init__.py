"""Plays a random adversary, and an honest twin with the same final work, against the daemon on live clusters."""
