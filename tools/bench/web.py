"""Time and bytes of the pages of the web view: `python -m tools.bench web [--size 10000:1000] [--json]`.

The web view is the real `sadvise web` in a process of its own, on a snapshot file.
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
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from advisor.backends.snapshot_file import write_snapshot
from tools.bench.measuring import size_of
from tools.bench.synthetic import synthetic

PAGES = ("/", "/line", "/line?sort=wait&order=desc&page=50", "/line?q=train77", "/jobs/77", "/advice", "/api/v1/line")
_READY = re.compile(r"http://127\.0\.0\.1:(\d+)/")
_PATIENCE_S = 300.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--size", default="10000:1000", metavar="JOBS:NODES", help="default 10000:1000")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Measure, and print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "snapshot.json"
        write_snapshot(synthetic(*size_of(options.size), 1), file)
        with served(file) as port:
            first_s = wait_for_view(port)
            pages = [page_figures(port, path) for path in PAGES]
    figures = {"size": options.size, "first_reading_s": round(first_s, 2), "pages": pages}
    if options.json:
        print(json.dumps(figures, indent=1))
        return 0
    print(f"the first reading of {options.size} took {first_s:.1f} s")
    for page in pages:
        print(f"{page['path']:<36} {page['median_s']:8.3f} s {page['bytes']:>9,} bytes")
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
