"""What all tests of what a daemon knows of its site share."""

from tests.daemon.rounds import journals_closed

__all__ = ["journals_closed"]
