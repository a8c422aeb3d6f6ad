"""Locks that keep a second daemon of the same cluster off this host."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from advisor.errors import ConfigError
from advisor.journal.file import taken


@contextmanager
def only_daemon(folder: Path, journal: Path) -> Iterator[None]:
    """Hold the locks of the daemon, one in the runtime folder and one beside the journal, while the block runs.

    They end with the process, however that ends. Raises `ConfigError` if another daemon holds one.
    """
    beside = journal.with_name(f"{journal.name}.daemon")
    with _held(folder / "sadvised.lock", "daemon.runtime_folder"), _held(beside, "journal.file"):
        yield


@contextmanager
def _held(path: Path, key: str) -> Iterator[None]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}: make its folder for this user, or set {key}") from err
    try:
        if not taken(descriptor):
            raise ConfigError(f"{path}: another sadvised runs here: stop that one first")
        yield
    finally:
        os.close(descriptor)
