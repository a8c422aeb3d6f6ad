"""What all tests of what a daemon knows of its site share."""

from tests.daemon.rounds import journals_closed, site

__all__ = ["journals_closed", "site"]
