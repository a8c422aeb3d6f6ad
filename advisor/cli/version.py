"""Prints the version."""

import sys

from advisor import __version__


def print_version() -> None:
    """Print the version of sadvise and of the interpreter it runs on."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    sys.stdout.write(f"sadvise {__version__} (Python {version})\n")
