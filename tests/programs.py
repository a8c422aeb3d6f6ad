"""Programs of other people that tests run."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr

import pytest


def found(program: str, package: str) -> str:
    """Return a program's path; the test is skipped where it is missing, and fails in CI."""
    path = shutil.which(program)
    if path is None and os.environ.get("SADVISE_REQUIRE_SLURM"):
        pytest.fail(f"{program} is not installed: it comes with Debian's {package}")
    if path is None:
        pytest.skip(f"{program} is not installed: it comes with Debian's {package}")
    return path


@contextmanager
def killed_after(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Lend a process to a block, and kill it if it still runs when the block ends.

    `with Popen(...)` alone waits for the process without limit, also when the block fails.
    """
    with process:
        try:
            yield process
        finally:
            process.kill()
