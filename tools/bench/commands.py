"""Time and CPU of commands, each as a process of its own: `--version`, the demo, and two commands on a long queue.

    python -m tools.bench commands [--jobs 10000] [--nodes 1000] [--repeat 3] [--json]

The queue is made up and read from a snapshot file. The CPU is that of the command and of the processes it starts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from advisor.backends.snapshot_file import write_snapshot
from advisor.errors import SimulationError
from tools.bench.synthetic import synthetic


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--jobs", type=int, default=10_000, help="pending jobs")
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of eight GPUs")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the fastest counts")
    parser.add_argument("--seed", type=int, default=1, help="seed of the synthetic cluster")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Measure every command and print the least time and the least CPU of each."""
    with tempfile.TemporaryDirectory() as folder:
        queue = Path(folder) / "queue.json"
        write_snapshot(synthetic(options.jobs, options.nodes, options.seed), queue)
        commands = {
            "--version": ["--version"],
            "recommend --demo": ["recommend", "--demo"],
            "recommend": ["recommend", "--snapshot", str(queue)],
            "explain": ["explain", "--snapshot", str(queue), str(options.jobs // 2)],
        }
        least = {
            name: tuple(map(min, zip(*(once(arguments) for _ in range(options.repeat)), strict=True)))
            for name, arguments in commands.items()
        }
    if options.json:
        meta = {"tool": "bench commands", "jobs": options.jobs, "nodes": options.nodes, "seed": options.seed}
        runs = [
            {"command": name, "wall_s": round(wall_s, 3), "cpu_s": round(cpu_s, 3)}
            for name, (wall_s, cpu_s) in least.items()
        ]
        print(json.dumps({"meta": meta, "runs": runs}, indent=1))
        return 0
    print(f"{options.jobs} pending jobs, {options.nodes} nodes\n{'command':17}{'wall s':>8}{'CPU s':>8}")
    for name, (wall_s, cpu_s) in least.items():
        print(f"{name:17}{wall_s:8.2f}{cpu_s:8.2f}")
    return 0


def once(arguments: list[str]) -> tuple[float, float]:
    """Run a command and return its time and its CPU seconds; raises `SimulationError` where it fails."""
    began = time.perf_counter()
    argv = [sys.executable, "-m", "advisor.cli.main", *arguments]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SimulationError(f"sadvise {' '.join(arguments)} failed with exit code {process.returncode}")
    return wall_s, used.ru_utime + used.ru_stime
