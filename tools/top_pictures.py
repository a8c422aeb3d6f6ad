"""Draws the live view of the embedded queue: `python -m tools.top_pictures` writes docs/top.svg and docs/top-wide.svg.

The clock stands 12 s after the queue was recorded, so that the pictures are the same on every day.
"""

import argparse
import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from advisor.backends.snapshot_file import read_snapshot
from advisor.clock import ManualClock
from advisor.top.live_view import LiveView
from advisor.watch.clusters import watched_clusters
from advisor.watch.reading import Reading, demo_path

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
SIZES: Final = {"top.svg": (80, 24), "top-wide.svg": (120, 40)}
# Fonts from the network; the ones of the viewer serve.
_FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_AGE_S: Final = 12.0


def demo_view(monotonic: Callable[[], float] = time.monotonic) -> LiveView:
    """Return the live view of the embedded queue at a fixed instant."""
    clock = ManualClock(read_snapshot(demo_path()).taken_at + _AGE_S)
    clusters = watched_clusters(Reading(demo=True), journal=None, max_age_s=30.0)
    return LiveView(clusters, interval_s=3600.0, clock=clock, monotonic=monotonic)


async def picture(size: tuple[int, int]) -> str:
    """Return the live view at a size as SVG."""
    view = demo_view()
    async with view.run_test(size=size) as pilot:
        while view.is_reading:
            await pilot.pause(0.02)
        await pilot.pause()
        return _FONTS.sub("", view.export_screenshot())


def main() -> int:
    """Write the pictures; return the exit status."""
    summary = (__doc__ or "").splitlines()[0]
    argparse.ArgumentParser(prog="python -m tools.top_pictures", description=summary).parse_args()
    for name, size in SIZES.items():
        (DOCS / name).write_text(asyncio.run(picture(size)) + "\n", encoding="utf-8")
        print(DOCS / name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
