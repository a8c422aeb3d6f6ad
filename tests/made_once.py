"""Makes what several tests need once for all workers of a run."""

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

_MADE = "made"


def made_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that `make` has filled; the first worker that asks makes it, and the others wait for it.

    Tests must not change what is in the folder. What one worker fails to make, the next one tries to make again.
    """
    folder = _shared_by_workers(tmp_path_factory) / name
    folder.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        contents = folder / "contents"
        if not (folder / _MADE).exists():
            contents.mkdir(exist_ok=True)
            make(contents)
            (folder / _MADE).touch()
    return contents


def _shared_by_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the run, which holds one folder for each worker of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if base.name.startswith("popen-") else base
