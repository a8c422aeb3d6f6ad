"""Locks a journal: jobs are changed only by the program that holds its lock."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from advisor.errors import JournalError
from advisor.journal.file import NO_FOLDER

_LOCK_POLL_S: Final = 0.05


@contextmanager
def locked(path: Path, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock file beside a journal for a block; the lock ends with the process in any case.

    Raises `JournalError` if another process still holds it after `wait_s`.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError as err:
        raise JournalError(f"{path}: {NO_FOLDER}") from err
    except OSError as err:
        raise JournalError(f"{lock}: cannot be opened: {err.strerror}: name another file with --journal") from err
    with open(descriptor, "r+b", buffering=0):  # noqa: PTH123  (a descriptor)
        deadline = time.monotonic() + wait_s
        while not taken(descriptor):
            if time.monotonic() >= deadline:
                raise JournalError(f"{path}: another sadvise is changing jobs with it: wait until it is done")
            time.sleep(_LOCK_POLL_S)
        yield


def taken(descriptor: int) -> bool:
    """Take a lock and return True, or return False if another process holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
