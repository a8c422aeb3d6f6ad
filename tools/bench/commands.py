"""Time and CPU of commands, each as a process of its own: `--version`, the demo, and two commands on a long queue.

    python -m tools.bench commands [--jobs 10000] [--nodes 1000] [--repeat 3] [--json]

The queue is made up and read from a snapshot file. The CPU is that of the command and of the processes it starts.
"""

import argparse
import os
import subprocess
import sys
import time

from advisor.errors import SimulationError
from tools.bench.queue_times import add_queue_options, least, print_least, queue_file


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_queue_options(parser)


def run(options: argparse.Namespace) -> int:
    """Measure every command and print the figures."""
    with queue_file(options) as queue:
        commands = {
            "--version": ["--version"],
            "recommend --demo": ["recommend", "--demo"],
            "recommend": ["recommend", "--snapshot", str(queue)],
            "explain": ["explain", "--snapshot", str(queue), str(options.jobs // 2)],
        }
        rows = [least(name, [once(arguments) for _ in range(options.repeat)]) for name, arguments in commands.items()]
    print_least(rows, options, tool="bench commands", what="command")
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
