"""CPU by stage, memory, and processes that measure alone."""

import json
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

from advisor.errors import SimulationError


@dataclass
class Stages:
    """CPU seconds by stage."""

    cpu_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _inside: list[str] = field(default_factory=list)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the CPU of a block for a stage; a stage within another one counts for itself alone."""
        began = time.process_time()
        self._inside.append(stage)
        try:
            yield
        finally:
            self._inside.pop()
            spent = time.process_time() - began
            self.cpu_s[stage] += spent
            if self._inside:
                self.cpu_s[self._inside[-1]] -= spent

    @contextmanager
    def counting(self, owner: type, method: str, stage: str) -> Iterator[None]:
        """Count the CPU of a method for a stage as long as the block lasts."""
        inner: Callable[..., Any] = getattr(owner, method)

        @wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.timed(stage):
                return inner(*args, **kwargs)

        setattr(owner, method, timed)
        try:
            yield
        finally:
            setattr(owner, method, inner)


def peak_mib() -> float:
    """Return the most memory that this process has held in RAM, which getrusage mixes with that of its parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def resident_mib() -> float:
    """Return the memory that this process holds in RAM now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def in_own_process(bench: str, *arguments: str) -> dict[str, Any]:
    """Return the JSON that a benchmark prints in a process of its own; raises `SimulationError` where it fails."""
    answer = subprocess.run(
        [sys.executable, "-m", "tools.bench", bench, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        last = (answer.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise SimulationError(f"the process failed: {last}")
    document: dict[str, Any] = json.loads(answer.stdout)
    return document


def size_of(text: str) -> tuple[int, int]:
    """Read JOBS:NODES."""
    jobs, nodes = text.split(":")
    return int(jobs), int(nodes)
