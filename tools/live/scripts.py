"""The batch script of a job, which shows when it starts and runs until it is let go.

The script makes a FIFO and waits for a line from it, which takes no CPU. Its name holds the job and its start.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"^(\d+)\.(\d+)$")
_EVERYONE: Final = 0o1777


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A job whose script has begun, at an instant in POSIX seconds; `starts` counts the starts before this one."""

    job_id: int
    starts: int
    instant: float


class Scripts:
    """The scripts of a cluster; their FIFOs are in `folder`, which programs of the cluster see under the same name."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, in which jobs of all users make their FIFOs."""
        folder.mkdir()
        folder.chmod(_EVERYONE)
        self._folder = folder
        self._seen: set[str] = set()

    @property
    def text(self) -> str:
        """The script without its first line."""
        fifo = f'"{self._folder}/$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}"'
        return f"mkfifo -m 600 {fifo} && read -r _ <{fifo}"

    def began(self) -> Iterator[Began]:
        """Yield the jobs whose scripts have begun since the last call."""
        for entry in sorted(os.scandir(self._folder), key=lambda entry: entry.name):
            named = _NAME.match(entry.name)
            if named and entry.name not in self._seen:
                self._seen.add(entry.name)
                yield Began(job_id=int(named[1]), starts=int(named[2]), instant=entry.stat().st_mtime)

    def let_go(self, job_id: int, starts: int) -> bool:
        """Let a script end; return False if it does not wait yet."""
        path = self._folder / f"{job_id}.{starts}"
        try:
            fifo = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            # It has no reader: the script has not come so far, or was ended.
            return False
        try:
            os.write(fifo, b"\n")
        finally:
            os.close(fifo)
        return True
