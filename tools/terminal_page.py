"""Writes docs/terminal.md: what commands print on terminals of 80 and 120 columns, typed on a pseudo-terminal."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "terminal.md"
WIDTHS: Final = (80, 120)
COMMANDS: Final = ("recommend --demo", "recommend --demo --long --top 1", "check --demo", "models list")
_STYLE: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_HEAD: Final = """# On the terminal

What commands print on terminals of 80 and 120 columns, typed by `python -m tools.terminal_page`. Numbers and ids stay
whole, names end in `+` where they are cut, sentences are folded between words. What does not fit is left out:

- of `recommend` first the command, then reason, partition, account, user and name; `-P`, `-o` and `--json` have all;
- of `journal` first the job ids, then the delay, the account and the value before;
- of `apply` and `revert` first the job ids, then the command, partition, account and name;
- of `models list` the parity, then the date; other tables go on below, beside their first column.

`NO_COLOR` turns colours off: yellow is what a site lacks, red what stops the daemon. A pipe gets every column whole.
"""


def page() -> str:
    """Type every command at every width, and return the page."""
    return "\n".join([_HEAD, *(section(command, width) for command in COMMANDS for width in WIDTHS)])


def section(command: str, width: int) -> str:
    """Type a command at a width, and return its part of the page."""
    return f"## {width} columns: sadvise {command}\n\n```\n{shown(command, width)}\n```\n"


def shown(command: str, width: int) -> str:
    """Return what a command of sadvise shows on a terminal, without styles and blanks at the ends of lines."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    # A busy machine gets time enough to try every change.
    environment |= {"TERM": "xterm", "TZ": "UTC", "SADVISE_PLANNING__ROLLOUT_DEADLINE_S": "80"}
    argv = [sys.executable, "-m", "advisor.cli.main", *command.split()]
    with subprocess.Popen(argv, stdin=side, stdout=side, stderr=side, env=environment):
        os.close(side)
        text = _read(main).decode()
    os.close(main)
    return "\n".join(line.rstrip() for line in _STYLE.sub("", text).splitlines()).rstrip()


def _read(terminal: int) -> bytes:
    """Read a terminal until its other end is closed."""
    read = b""
    while True:
        try:
            chunk = os.read(terminal, 65_536)
        except OSError:
            return read
        if not chunk:
            return read
        read += chunk


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
