"""Time and peak memory of one cycle, snapshot in memory to verdicts, at growing queues.

    python -m tools.bench cycle [--sizes 1000:100,10000:1000,100000:10000] [--repeat 3] [--json]

Each size runs in a process of its own, so that its peak memory is its own. Growth compares the time of each
size with that of the size before: the ratio of times over the ratio of jobs, 1.0 being linear.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass
from typing import Any

from advisor.cycle import Cycle
from tools.bench.measuring import in_own_process, peak_mib, size_of
from tools.bench.synthetic import synthetic

DEFAULT_SIZES = "1000:100,10000:1000,100000:10000"


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleFigures:
    """One size's figures; times are the least of the repeats."""

    jobs: int
    nodes: int
    cycle_s: float
    snapshot_mib: float
    peak_mib: float
    recommendations: int
    skipped: int
    growth: float | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--sizes", default=DEFAULT_SIZES, metavar="JOBS:NODES,...", help=f"default {DEFAULT_SIZES}")
    parser.add_argument("--repeat", type=int, default=3, help="cycles per size; the fastest counts")
    parser.add_argument("--seed", type=int, default=1, help="seed of the synthetic cluster")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--one", metavar="JOBS:NODES", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Measure every size and print the figures."""
    if options.one:
        print(json.dumps(asdict(measure(*size_of(options.one), options.repeat, options.seed))))
        return 0
    rows: list[dict[str, Any]] = []
    for size in options.sizes.split(","):
        row = in_own_process("cycle", "--one", size, "--repeat", str(options.repeat), "--seed", str(options.seed))
        if rows:
            row["growth"] = round(row["cycle_s"] / rows[-1]["cycle_s"] / (row["jobs"] / rows[-1]["jobs"]), 2)
        rows.append(row)
        if not options.json:
            if len(rows) == 1:
                print("  ".join(f"{name:>15}" for name in row))
            print("  ".join(f"{'-' if value is None else value:>15}" for value in row.values()), flush=True)
    if options.json:
        print(json.dumps({"meta": {"tool": "bench cycle", "seed": options.seed}, "runs": rows}, indent=1))
    return 0


def measure(n_jobs: int, n_nodes: int, repeat: int, seed: int) -> CycleFigures:
    """Run the cycle in this process."""
    snapshot = synthetic(n_jobs, n_nodes, seed)
    before_mib = peak_mib()
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        record = Cycle().judge(snapshot)
        times.append(time.perf_counter() - started)
    return CycleFigures(
        jobs=n_jobs,
        nodes=n_nodes,
        cycle_s=round(min(times), 4),
        snapshot_mib=round(before_mib, 1),
        peak_mib=round(peak_mib(), 1),
        recommendations=len(record.recommendations),
        skipped=len(record.left_alone),
    )
