"""Time and CPU of the live view on a long queue: a refresh, a redraw, and scrolling by pages.

    python -m tools.bench live_view [--jobs 10000] [--nodes 1000] [--repeat 3] [--json]

The queue is made up and read from a snapshot file; a refresh reads it, plans, tries the plan, forecasts starts and
draws. The CPU is that of this process, without the one in which the plan is tried.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from textual.pilot import Pilot

from advisor.top.live_view import LiveView
from advisor.watch.clusters import watched_clusters
from advisor.watch.reading import Reading
from tools.bench.queue_times import LeastTimes, add_queue_options, least, print_least, queue_file

_SIZE: Final = (120, 40)
_PAGES: Final = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_queue_options(parser)


def run(options: argparse.Namespace) -> int:
    """Measure every step and print the figures."""
    with queue_file(options) as queue:
        reading = Reading(snapshot=queue, tries_plans=True)
        view = LiveView(watched_clusters(reading, journal=None, max_age_s=0.0), interval_s=float("inf"))
        rows = asyncio.run(_measured(view, options.repeat))
    print_least(rows, options, tool="bench live_view", what="step")
    return 0


async def _measured(view: LiveView, repeat: int) -> list[LeastTimes]:
    async with view.run_test(size=_SIZE) as pilot:
        await _read(view, pilot)

        async def refresh() -> None:
            view.read()
            await _read(view, pilot)

        async def redraw() -> None:
            view.show()
            await pilot.pause()

        async def scroll() -> None:
            await pilot.press(*["pagedown"] * _PAGES)

        steps = {"refresh": refresh, "redraw": redraw, f"{_PAGES} pages": scroll}
        return [await _least(name, step, repeat) for name, step in steps.items()]


async def _read(view: LiveView, pilot: Pilot[Exception]) -> None:
    while view.is_reading:
        await pilot.pause(0.05)


async def _least(name: str, step: Callable[[], Awaitable[None]], repeat: int) -> LeastTimes:
    times = []
    for _ in range(repeat):
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        await step()
        times.append((time.perf_counter() - wall_s, time.process_time() - cpu_s))
    return least(name, times)
