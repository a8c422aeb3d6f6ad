"""What all tests of the daemon share."""

from tests.daemon.rounds import journals_closed

__all__ = ["journals_closed"]
