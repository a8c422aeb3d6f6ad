"""Lends a long queue that is made up, and prints the least time that each of several things took on it."""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from advisor.backends.snapshot_file import write_snapshot
from tools.bench.synthetic import synthetic


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastTimes:
    """The least time and CPU of something that was done several times."""

    name: str
    wall_s: float
    cpu_s: float


def least(name: str, times: Sequence[tuple[float, float]]) -> LeastTimes:
    """Return the least of each of the times and CPU seconds."""
    wall_s, cpu_s = (min(values) for values in zip(*times, strict=True))
    return LeastTimes(name=name, wall_s=round(wall_s, 3), cpu_s=round(cpu_s, 3))


def add_queue_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of what is measured on a long queue that is made up."""
    parser.add_argument("--jobs", type=int, default=10_000, help="pending jobs")
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of eight GPUs")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the fastest counts")
    parser.add_argument("--seed", type=int, default=1, help="seed of the synthetic cluster")
    parser.add_argument("--json", action="store_true", help="print JSON")


@contextmanager
def queue_file(options: argparse.Namespace) -> Iterator[Path]:
    """Lend the snapshot of the queue as a file, for the length of a block."""
    with tempfile.TemporaryDirectory() as folder:
        queue = Path(folder) / "queue.json"
        write_snapshot(synthetic(options.jobs, options.nodes, options.seed), queue)
        yield queue


def print_least(rows: Sequence[LeastTimes], options: argparse.Namespace, *, tool: str, what: str) -> None:
    """Print what each took, as a table or as JSON, where `what` names the rows."""
    if options.json:
        meta = {"tool": tool, "jobs": options.jobs, "nodes": options.nodes, "seed": options.seed}
        runs = [{what: row.name, "wall_s": row.wall_s, "cpu_s": row.cpu_s} for row in rows]
        print(json.dumps({"meta": meta, "runs": runs}, indent=1))
        return
    print(f"{options.jobs} pending jobs, {options.nodes} nodes\n{what:17}{'wall s':>8}{'CPU s':>8}")
    for row in rows:
        print(f"{row.name:17}{row.wall_s:8.2f}{row.cpu_s:8.2f}")
