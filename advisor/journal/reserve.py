"""Keeps the reserve: room beside the journal in which reverted changes are recorded while its disk is full.

The file has its full size from the start and is written in place, so that recording takes no new room on the disk.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from advisor.domain.lease import Lease
from advisor.errors import JournalFullError
from advisor.journal.rows import lease_of, lease_row

# Room for three hundred leases.
SIZE_BYTES: Final = 128 << 10


class Reserve:
    """The reserve of one journal; used under the journal's lock."""

    def __init__(self, journal: Path) -> None:
        self._path = journal.with_name(f"{journal.name}.reserve")

    def prepare(self) -> None:
        """Give the file its full size; raises `JournalFullError` if there is no room for it."""
        with suppress(OSError):
            if self._path.stat().st_size == SIZE_BYTES:
                return
        try:
            self._write(b"", os.O_CREAT | os.O_TRUNC)
        except OSError as err:
            with suppress(OSError):
                self._path.unlink()
            raise JournalFullError(
                f"{self._path}: cannot be written, and without it nothing is applied: {err.strerror}"
            ) from err

    def leases(self) -> tuple[Lease, ...]:
        """Return the leases in it: ended, or being reverted; none if the file is missing or unreadable."""
        try:
            rows = json.loads(self._path.read_bytes() or b"[]")
            return tuple(lease_of(tuple(row)) for row in rows)
        except (OSError, ValueError, TypeError, KeyError):
            return ()

    def keep(self, leases: Sequence[Lease]) -> None:
        """Record leases in place of the earlier ones, the last ones where not all fit; raises `JournalFullError`."""
        # Nothing is compared with the request of a lease that is being reverted.
        rows = [json.dumps(lease_row(replace(lease, request=None))) for lease in leases]
        while sum(len(row) + 1 for row in rows) >= SIZE_BYTES:
            del rows[0]
        try:
            self._write(f"[{','.join(rows)}]".encode(), 0)
        except OSError as err:
            raise JournalFullError(f"{self._path}: what was reverted cannot be recorded: {err.strerror}") from err

    def _write(self, content: bytes, flags: int) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
        with open(descriptor, "wb") as stream:  # noqa: PTH123  (a descriptor)
            stream.write(content.ljust(SIZE_BYTES))
            stream.flush()
            os.fsync(descriptor)
