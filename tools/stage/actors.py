"""Lets time pass on a live cluster while several actors act, each every few seconds."""

import subprocess
import time
from collections.abc import Iterator


class Every:
    """Says when something that is done every few seconds is due."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due_s = float("-inf")

    def is_due(self, passed_s: float) -> bool:
        """Return whether it is due, and if so begin to wait for the next time."""
        if passed_s < self._due_s:
            return False
        self._due_s = passed_s + self._seconds
        return True


def passing(length_s: float, poll_s: float, process: "subprocess.Popen[bytes] | None" = None) -> Iterator[float]:
    """Yield the seconds passed so far, with a pause after each, until a time is over or a process has ended."""
    began = time.monotonic()
    while (passed_s := time.monotonic() - began) < length_s:
        if process is not None and process.poll() is not None:
            return
        yield passed_s
        time.sleep(poll_s)
