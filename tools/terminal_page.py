"""Draws docs/recommend.svg, what the first command of the front page prints, and the pictures of the live view.

The live view is that of the embedded queue; its clock stands 12 s after it was recorded, so that the pictures are the
same on every day.
"""

import argparse
import asyncio
import io
import re
import tempfile
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
from tools.console_pages import COLUMNS, Shell

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
PICTURE: Final = DOCS / "recommend.svg"
PICTURED: Final = "sadvise recommend --demo"
# The live view.
SIZES: Final = {"top.svg": (80, 24), "top-wide.svg": (120, 40)}
_AGE_S: Final = 12.0
# Fonts from the network; the ones of the viewer serve.
_FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def picture() -> str:
    """Type the command of the front page, and return what the terminal shows as SVG."""
    with tempfile.TemporaryDirectory(prefix="sadvise-console-") as folder:
        return drawn(Shell(Path(folder)).type(PICTURED), columns=COLUMNS, title=PICTURED)


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
    PICTURE.write_text(picture(), encoding="utf-8")
    for name, size in SIZES.items():
        (DOCS / name).write_text(asyncio.run(view_picture(size)), encoding="utf-8")
