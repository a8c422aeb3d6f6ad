"""Keeps what the advised cluster showed over a run, as `sadvise snapshot` reads it, with the jobs of both clusters."""

import lzma
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.live_twins.twins import Twin, Twins

SNAPSHOT_EVERY_S: Final = 5.0


class Past:
    """Takes a snapshot of the advised cluster every few seconds."""

    def __init__(self, twins: Twins, folder: Path) -> None:
        self._twins = twins
        self._folder = folder / "snapshots"
        self._folder.mkdir()
        self._reading: subprocess.Popen[bytes] | None = None
        self._next_s = 0.0
        self._taken = 0

    def act(self, passed_s: float) -> None:
        """Begin the next snapshot if it is due and the last one is done."""
        if passed_s < self._next_s or (self._reading is not None and self._reading.poll() is None):
            return
        self._next_s = passed_s + SNAPSHOT_EVERY_S
        self._taken += 1
        path = self._folder / f"{self._taken:04d}.json"
        program = [sys.executable, "-m", "advisor.cli.main", "snapshot", "--output", str(path)]
        self._reading = subprocess.Popen(program, env=self._twins.clusters[Twin.ADVISED].env, stderr=subprocess.DEVNULL)

    def pack(self, jobs: Path, path: Path) -> None:
        """Write the snapshots in order, then the jobs, one JSON object a line, as one xz file."""
        if self._reading is not None:
            self._reading.wait()
        lines = [file.read_bytes().strip() for file in sorted(self._folder.glob("*.json"))]
        path.write_bytes(lzma.compress(b"\n".join([*lines, jobs.read_bytes()]), preset=6))
