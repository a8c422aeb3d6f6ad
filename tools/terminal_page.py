"""Writes what commands print on terminals, docs/terminal.md and docs/recommend.svg, and the pictures of the live view.

Commands are typed on a pseudo-terminal. The live view is that of the embedded queue; its clock stands 12 s after it was
recorded, so that the pictures are the same on every day.
"""

import argparse
import asyncio
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from advisor.backends.snapshot_file import read_snapshot
from advisor.clock import ManualClock
from advisor.top.live_view import LiveView
from advisor.watch.clusters import watched_clusters
from advisor.watch.reading import Reading, demo_path
from tools.console_pages import read_terminal

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
PAGE: Final = DOCS / "terminal.md"
# The front page shows what its first command prints.
PICTURE: Final = DOCS / "recommend.svg"
PICTURED: Final = "recommend --demo"
PICTURE_SIZE: Final = (80, 24)
# The live view.
SIZES: Final = {"top.svg": (80, 24), "top-wide.svg": (120, 40)}
_AGE_S: Final = 12.0
# On how many columns each is shown.
COMMANDS: Final = (
    ("recommend --demo", 120),
    ("check --demo", 80),
    ("models list", 80),
)
_STYLE: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
# Fonts from the network; the ones of the viewer serve.
_FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
# Of the caller's: they change the width or the colours.
_OWN: Final = ("COLUMNS", "LINES", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
_HEAD: Final = """# On the terminal

What commands print on terminals of 80 and 120 columns, typed by `python -m tools.terminal_page`;
[five-minutes.md](five-minutes.md) shows more of them on 80. Numbers and ids stay whole, names end in `+` where they are
cut, sentences are folded between words. What does not fit is left out:

- of `recommend` first the command, then reason, partition, account, user and name; `-P`, `-o` and `--json` have all;
- of `journal` first the job ids, then the delay, the account and the value before;
- of `apply` and `revert` first the job ids, then the command, partition, account and name;
- of `models list` the parity, then the date; other tables go on below, beside their first column.

`NO_COLOR` turns colours off: yellow is what a site lacks, red what stops the daemon. A pipe gets every column whole.
"""


def page() -> str:
    """Type every command, and return the page."""
    return "\n".join([_HEAD, *(section(command, width) for command, width in COMMANDS)])


def section(command: str, width: int) -> str:
    """Type a command at a width, and return its part of the page."""
    return f"## {width} columns: sadvise {command}\n\n```\n{shown(command, width)}\n```\n"


def shown(command: str, width: int) -> str:
    """Return what a command of sadvise shows on a terminal, without styles and blanks at the ends of lines."""
    lines = _STYLE.sub("", typed(command, columns=width)).splitlines()
    return "\n".join(line.rstrip() for line in lines).rstrip()


def typed(command: str, *, columns: int, rows: int = 40) -> str:
    """Type a command of sadvise on a terminal, and return all that it prints there, styles included."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in _OWN}
    # A busy machine gets time enough to try every change.
    environment |= {"TERM": "xterm", "TZ": "UTC", "SADVISE_PLANNING__ROLLOUT_DEADLINE_S": "80"}
    argv = [sys.executable, "-m", "advisor.cli.main", *command.split()]
    with subprocess.Popen(argv, stdin=side, stdout=side, stderr=side, env=environment):
        os.close(side)
        text = b"".join(read_terminal(main)).decode()
    os.close(main)
    # A terminal ends lines by a carriage return, too.
    return text.replace("\r\n", "\n")


def picture() -> str:
    """Type the command of the front page, and return what the terminal shows as SVG."""
    columns, rows = PICTURE_SIZE
    return drawn(typed(PICTURED, columns=columns, rows=rows), columns=columns, title=f"sadvise {PICTURED}")


def drawn(text: str, *, columns: int, title: str) -> str:
    """Draw styled text as a terminal of its own colours, which can be read on light and on dark pages."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    console.print(Text.from_ansi(text.rstrip()), no_wrap=True, crop=False, overflow="ignore")
    return _FONTS.sub("", console.export_svg(title=title, unique_id=PICTURE.stem)) + "\n"


def demo_view(monotonic: Callable[[], float] = time.monotonic) -> LiveView:
    """Return the live view of the embedded queue at a fixed instant."""
    clock = ManualClock(read_snapshot(demo_path()).taken_at + _AGE_S)
    clusters = watched_clusters(Reading(demo=True), journal=None, max_age_s=30.0)
    return LiveView(clusters, interval_s=3600.0, clock=clock, monotonic=monotonic)


async def view_picture(size: tuple[int, int]) -> str:
    """Return the live view at a size as SVG."""
    view = demo_view()
    async with view.run_test(size=size) as pilot:
        while view.is_reading:
            await pilot.pause(0.02)
        await pilot.pause()
        return _FONTS.sub("", view.export_screenshot()) + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tools.terminal_page", description=__doc__).parse_args()
    PAGE.write_text(page(), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
    for name, size in SIZES.items():
        (DOCS / name).write_text(asyncio.run(view_picture(size)), encoding="utf-8")
