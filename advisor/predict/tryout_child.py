"""Runs in a child process: opens the graph that it reads from standard input, and runs it once."""

import resource
import sys
from pathlib import Path

from advisor.errors import ModelError
from advisor.predict.onnx_model import TensorGraph, runtime

_NAME = "tried"


def main() -> None:
    """Limit this process, then try the graph; exits with 1 after the reason where that fails."""
    limit_s, room_bytes = int(sys.argv[1]), int(sys.argv[2])
    content = sys.stdin.buffer.read()
    runtime()
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    # Should the parent be killed, nothing else would end a graph that does not end.
    _limit(resource.RLIMIT_CPU, limit_s)
    _limit(resource.RLIMIT_AS, _address_space_bytes() + room_bytes)
    try:
        TensorGraph(content, name=_NAME).run_on_zeros()
    except (ModelError, MemoryError) as err:
        sys.stdout.write(str(err).removeprefix(f"model {_NAME}: ") or "it needs more memory")
        sys.exit(1)


def _limit(kind: int, most: int) -> None:
    _, highest = resource.getrlimit(kind)
    bound = most if highest == resource.RLIM_INFINITY else min(most, highest)
    # Of CPU time a second more, so that the signal says which limit it was.
    resource.setrlimit(kind, (bound, bound if kind != resource.RLIMIT_CPU or bound == highest else bound + 1))


def _address_space_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()
