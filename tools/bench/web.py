"""Time and bytes of the pages of the web view, and of a round of the daemon's work with ten viewers and with none.

    python -m tools.bench web [--size 10000:1000] [--pairs 5] [--viewers 10] [--every 60] [--json]

The web view is the real `sadvise web` in a process of its own, on a snapshot file. The viewers, in another process,
open pages in turn, each one page in `--every` seconds, as a browser that stays open does. A round here is the cycle of
the daemon, from the snapshot in memory to verdicts; those with and without viewers take turns, and `sadvise web` runs
in both.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np

from advisor.backends.snapshot_file import write_snapshot
from advisor.cycle import Cycle
from advisor.domain.snapshot import Snapshot
from tools.bench.measuring import size_of
from tools.bench.synthetic import synthetic

PAGES = ("/", "/line", "/line?sort=wait&order=desc&page=50", "/line?q=train77", "/jobs/77", "/advice", "/api/v1/line")
_VIEWER = "/line"
_READY = re.compile(r"http://127\.0\.0\.1:(\d+)/")
_PATIENCE_S = 300.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--size", default="10000:1000", metavar="JOBS:NODES", help="default 10000:1000")
    parser.add_argument("--pairs", type=int, default=5, help="rounds with viewers and as many without")
    parser.add_argument("--viewers", type=int, default=10, help="open browsers")
    parser.add_argument("--every", type=float, default=60.0, metavar="SECONDS", help="how often each opens a page")
    parser.add_argument("--json", action="store_true", help="print JSON")
    # What the process of the viewers is started with.
    parser.add_argument("--view", type=int, metavar="PORT", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Measure, and print the figures."""
    if options.view is not None:
        look_on(options.view, options.viewers, options.every)
        return 0
    snapshot = synthetic(*size_of(options.size), 1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "snapshot.json"
        write_snapshot(snapshot, file)
        with served(file) as port:
            first_s = wait_for_view(port)
            pages = [page_figures(port, path) for path in PAGES]
            rounds = round_figures(snapshot, port, options)
    figures = {"size": options.size, "first_reading_s": round(first_s, 2), "pages": pages, "rounds": rounds}
    if options.json:
        print(json.dumps(figures, indent=1))
        return 0
    print(f"the first reading of {options.size} took {first_s:.1f} s")
    for page in pages:
        print(f"{page['path']:<36} {page['median_s']:8.3f} s {page['bytes']:>9,} bytes")
    for name, value in rounds.items():
        print(f"{name:<36} {value}")
    return 0


@contextmanager
def served(file: Path) -> Iterator[int]:
    """Run `sadvise web` on a snapshot file; yields its port."""
    argv = [sys.executable, "-m", "advisor.cli.main", "web", "--snapshot", str(file), "--listen", "127.0.0.1:0"]
    # Read once: a file does not change.
    environment = {**os.environ, "SADVISE_WEB__MAX_AGE_S": "3600"}
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            line = process.stderr.readline() if process.stderr is not None else ""
            ready = _READY.search(line)
            if ready is None:
                raise RuntimeError(f"sadvise web did not start: {line}")
            yield int(ready[1])
        finally:
            process.terminate()


def ask(port: int, path: str) -> tuple[int, int]:
    """Return the status and the bytes of an answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, len(answer.read())
    finally:
        connection.close()


def wait_for_view(port: int) -> float:
    """Wait until the cluster has been read, and return for how long."""
    begun = time.monotonic()
    while ask(port, "/api/v1/cluster")[0] != 200:
        if time.monotonic() - begun > _PATIENCE_S:
            raise RuntimeError("sadvise web has not read its snapshot in time")
    return time.monotonic() - begun


def page_figures(port: int, path: str) -> dict[str, Any]:
    """Open a page several times."""
    times, size = [], 0
    for _ in range(9):
        begun = time.perf_counter()
        status, size = ask(port, path)
        times.append(time.perf_counter() - begun)
        if status != 200:
            raise RuntimeError(f"{path} answered {status}")
    return {
        "path": path,
        "median_s": round(statistics.median(times), 4),
        "largest_s": round(max(times), 4),
        "bytes": size,
    }


def round_figures(snapshot: Snapshot, port: int, options: argparse.Namespace) -> dict[str, Any]:
    """Time rounds with viewers and without in turn."""
    cycle = Cycle()
    walls: dict[bool, list[float]] = {True: [], False: []}
    cpus: dict[bool, list[float]] = {True: [], False: []}
    cycle.judge(snapshot)
    for number in range(2 * options.pairs):
        # The order within a pair changes, so that what drifts weighs on both alike.
        is_viewed = number % 4 in (0, 3)
        with viewers(port, options) if is_viewed else no_viewers():
            wall, cpu = time.perf_counter(), time.process_time()
            cycle.judge(snapshot)
            cpus[is_viewed].append(time.process_time() - cpu)
            walls[is_viewed].append(time.perf_counter() - wall)
    return {
        "viewers": options.viewers,
        "round_with_s": round(statistics.median(walls[True]), 3),
        "round_without_s": round(statistics.median(walls[False]), 3),
        "wall_percent": slower_percent(walls[True], walls[False]),
        "cpu_percent": slower_percent(cpus[True], cpus[False]),
        "spread_without_percent": round(100 * (max(walls[False]) / min(walls[False]) - 1), 1),
    }


def slower_percent(with_s: Sequence[float], without_s: Sequence[float]) -> list[float]:
    """Return by how much the rounds of a pair differ, in per cent: the median, and its 95 % interval by bootstrap."""
    ratios = np.array(with_s) / np.array(without_s)
    medians = np.median(np.random.default_rng(1).choice(ratios, (2000, len(ratios))), axis=1)
    values = (np.median(ratios), *np.quantile(medians, (0.025, 0.975)))
    return [round(100.0 * (float(value) - 1.0), 1) for value in values]


@contextmanager
def viewers(port: int, options: argparse.Namespace) -> Iterator[None]:
    """Keep viewers in a process of their own while the block runs."""
    argv = [sys.executable, "-m", "tools.bench", "web", "--view", str(port)]
    argv += ["--viewers", str(options.viewers), "--every", str(options.every)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            # Its first line says that it looks.
            if process.stdout is not None:
                process.stdout.readline()
            yield
        finally:
            process.terminate()


@contextmanager
def no_viewers() -> Iterator[None]:
    """Keep none."""
    yield


def look_on(port: int, count: int, every_s: float) -> None:
    """Open a page for one viewer after another, until this process is ended."""
    print("looking", flush=True)
    while True:
        ask(port, _VIEWER)
        time.sleep(every_s / count)
