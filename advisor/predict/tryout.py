"""Opens and runs a graph for the first time, in a child process with limits of time and memory (decision 0017)."""

import os
import signal
import subprocess
import sys
from typing import Final

from advisor.errors import ModelError
from advisor.predict.graph_rules import check_graph
from advisor.text import escaped

# CPU time; where the machine is busy, the run may take several times as long by the clock.
TIME_LIMIT_S: Final = 15
_CLOCK_PER_CPU: Final = 4
# Address space beyond that of the libraries. With the daemon's own memory it stays below MemoryMax= of the unit.
ROOM_BYTES: Final = 512 * 2**20

_REASON_LENGTH: Final = 200
# The child finds the modules where this process does, whatever the user's variables say.
_PROGRAM: Final = "import sys; sys.path[:] = sys.argv[3:]; from advisor.predict.tryout_child import main; main()"
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def admit(content: bytes, *, name: str) -> None:
    """Raise `ModelError` unless a graph holds only what sadvise runs and passes its first run."""
    check_graph(content, name=name)
    try_graph(content, name=name)


def try_graph(content: bytes, *, name: str, limit_s: int = TIME_LIMIT_S, room_bytes: int = ROOM_BYTES) -> None:
    """Open and run a graph in a child process; raises `ModelError` with the reason where it fails."""
    reason = _fault(content, limit_s, room_bytes)
    if reason is not None:
        raise ModelError(
            f"model {name}: it fails its first run, for which it has {limit_s} s and {room_bytes // 2**20} MiB: "
            f"{reason}: restore it, or roll back"
        )


def _fault(content: bytes, limit_s: int, room_bytes: int) -> str | None:
    """Return what went wrong in the child process; None if nothing did."""
    try:
        child = subprocess.run(
            [sys.executable, "-I", "-c", _PROGRAM, str(limit_s), str(room_bytes), *sys.path],
            input=content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | _ONE_THREAD,
            timeout=_CLOCK_PER_CPU * limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "it did not end in time"
    except OSError as err:
        return f"no process can be started: {err.strerror}"
    if child.returncode == 0:
        return None
    if child.returncode == -signal.SIGXCPU:
        return "it did not end in time"
    if child.returncode < 0:
        return f"it was ended by signal {-child.returncode}"
    return escaped(child.stdout.decode(errors="replace"))[:_REASON_LENGTH] or "it gave no reason"
