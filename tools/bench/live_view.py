"""Time and CPU of the live view on a long queue: a refresh, a redraw, and scrolling by pages.

    python -m tools.bench live_view [--jobs 10000] [--nodes 1000] [--repeat 3] [--json]

The queue is made up and read from a snapshot file; a refresh reads it, plans, tries the plan, forecasts starts and
draws. The CPU is that of this process, without the one in which the plan is tried.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from textual.pilot import Pilot

from advisor.backends.snapshot_file import write_snapshot
from advisor.top.live_view import LiveView
from advisor.watch.clusters import watched_clusters
from advisor.watch.reading import Reading
from tools.bench.synthetic import synthetic

_SIZE: Final = (120, 40)
_PAGES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFigures:
    """The figures of one step: the least of the repeats."""

    step: str
    wall_s: float
    cpu_s: float


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--jobs", type=int, default=10_000, help="pending jobs")
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of eight GPUs")
    parser.add_argument("--repeat", type=int, default=3, help="runs per step; the fastest counts")
    parser.add_argument("--seed", type=int, default=1, help="seed of the synthetic cluster")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Measure every step and print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        queue = Path(folder) / "queue.json"
        write_snapshot(synthetic(options.jobs, options.nodes, options.seed), queue)
        reading = Reading(snapshot=queue, tries_plans=True)
        view = LiveView(watched_clusters(reading, journal=None, max_age_s=0.0), interval_s=float("inf"))
        rows = asyncio.run(_measured(view, options.repeat))
    if options.json:
        meta = {"tool": "bench live_view", "jobs": options.jobs, "nodes": options.nodes, "seed": options.seed}
        print(json.dumps({"meta": meta, "runs": [asdict(row) for row in rows]}, indent=1))
        return 0
    print(f"{options.jobs} pending jobs, {options.nodes} nodes\n{'step':12}{'wall s':>8}{'CPU s':>8}")
    for row in rows:
        print(f"{row.step:12}{row.wall_s:8.2f}{row.cpu_s:8.2f}")
    return 0


async def _measured(view: LiveView, repeat: int) -> list[ViewFigures]:
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


async def _least(name: str, step: Callable[[], Awaitable[None]], repeat: int) -> ViewFigures:
    walls, cpus = [], []
    for _ in range(repeat):
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        await step()
        walls.append(time.perf_counter() - wall_s)
        cpus.append(time.process_time() - cpu_s)
    return ViewFigures(step=name, wall_s=min(walls), cpu_s=min(cpus))
