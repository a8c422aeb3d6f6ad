"""What all tests of the daemon share."""

from tests.daemon.rounds import journals_closed, site

__all__ = ["journals_closed", "site"]
