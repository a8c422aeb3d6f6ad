"""Runs a module of ours in a process of the lowest priority, which can be ended at a deadline."""

import os
import sys
from typing import Final

from advisor.backends.process import Deadline, run

_PROGRAM: Final = (
    "import sys; sys.path[:] = sys.argv[2:]; import runpy; runpy.run_module(sys.argv[1], run_name='__main__')"
)
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def run_module(module: str, task: bytes, patience: Deadline | None, *, limit_s: float) -> bytes:
    """Run a module that reads a task, and return its output.

    Raises `SlurmError` if it fails, takes too long or is cancelled; it is killed then, with all that it started.
    """
    argv = ("nice", "-n", "19", sys.executable, "-I", "-c", _PROGRAM, module, *sys.path)
    return run(argv, timeout_s=limit_s, variables=os.environ | _ONE_THREAD, patience=patience, content=task).output
