"""A program on a pseudo-terminal, as a person would use it."""

import os
import re
import select
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.needs import path_of
from tests.programs import killed_after

_CONTROL = re.compile(r"\x1b\[[0-9;:?<=>]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[PX^_].*?\x1b\\|\x1b.")


@dataclass
class Terminal:
    """What a program wrote to its terminal; `raw` holds the control sequences too."""

    descriptor: int
    process: subprocess.Popen[bytes]
    raw: str = field(default="")

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self.descriptor, keys.encode())

    def until(self, words: str, deadline_s: float = 60.0) -> None:
        """Wait until the program has written words, since the start or since `forget`."""
        end = time.monotonic() + deadline_s
        while words not in (shown := _CONTROL.sub("", self.raw)):
            ready, _, _ = select.select([self.descriptor], [], [], max(0.0, end - time.monotonic()))
            assert ready and self._read(), f"no {words!r} within {deadline_s:.0f} s: {shown[-3000:]}"

    def ended(self, deadline_s: float = 60.0) -> int:
        """Wait until the program ends; return its exit status."""
        end = time.monotonic() + deadline_s
        while self.process.poll() is None and time.monotonic() < end:
            ready, _, _ = select.select([self.descriptor], [], [], 0.1)
            if ready and not self._read():
                break
        return self.process.wait(max(0.1, end - time.monotonic()))

    def forget(self) -> None:
        """Forget what was written so far."""
        self.raw = ""

    def _read(self) -> bool:
        """Read what was written; False once the program has closed its end."""
        try:
            self.raw += os.read(self.descriptor, 65536).decode(errors="replace")
        except OSError:
            return False
        return True


@contextmanager
def on_terminal(
    argv: Sequence[str], environ: Mapping[str, str], *, columns: int = 120, lines: int = 40
) -> Iterator[Terminal]:
    """Run a program on a terminal of a size; it is killed at the end if it still runs."""
    path_of("terminal")
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (lines, columns))
    variables = {**environ, "TERM": "xterm-256color"}
    with killed_after(
        subprocess.Popen(argv, env=variables, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    ) as process:
        os.close(theirs)
        try:
            yield Terminal(descriptor=ours, process=process)
        finally:
            os.close(ours)
