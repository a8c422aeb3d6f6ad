"""Measures what one snapshot costs, reader by reader, beside a plain `squeue --json`, on a live queue.

    python -m tools.bench read [--release 26.05] [--jobs 4000] [--repeat 5]

Starts a cluster of its own, fills it with pending jobs and takes snapshots in turn with each reader, so that noise
hits all of them alike. CPU is the client's: this process and the commands it starts. Requests to slurmctld are
counted with sdiag, whose own request is left out. The controller runs on the same machine and its CPU is not counted.
Memory is what one snapshot adds to a process that has read nothing yet, without what the commands hold.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.errors import AdvisorError
from tools.bench.measuring import in_own_process, peak_mib
from tools.stage import LiveCluster

READERS = ("text", "pyslurm")
PLAIN = "squeue --json"
# The request forms of a mixed queue, in equal shares.
SHAPES = (
    ("--gres=gpu:2", "-n2", "--time=60"),
    ("--gres=gpu:a100:4", "-n4", "--time=2-00:00:00"),
    ("--gpus=8", "-n8", "-N1-4", "--time=1-00:00:00"),
    ("--gpus-per-node=8", "-N2", "--time=12:00:00", "--switches=1@30:00"),
    ("--gpus-per-task=1", "-n2", "--time=90"),
    ("--gpus=4", "-n1", "--time=4:00:00", "--comment=sadvise: gpus=1-8 ckpt=300 model=bert"),
    ("-n4", "--time=30", "--nice=10"),
    ("--gres=gpu:1", "--mem=8G", "--exclude=n01,n03", "--time=UNLIMITED"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderFigures:
    """One reader's medians; `requests` counts those of the last snapshot by type, `more_mib` is its memory."""

    reader: str
    cpu_s: float
    wall_s: float
    jobs: int
    requests: Mapping[str, int]
    more_mib: float


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--release", default="26.05", help="Slurm release of the cluster, default 26.05")
    parser.add_argument("--jobs", type=int, default=4000, help="pending jobs, default 4000")
    parser.add_argument("--repeat", type=int, default=5, help="snapshots per reader, default 5")
    parser.add_argument("--one", metavar="READER", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Start a cluster, fill it, measure, print."""
    if options.one:
        print(json.dumps(_memory(_task(options.one))))
        return 0
    with LiveCluster(options.release) as cluster:
        print(f"submitting {options.jobs} jobs to Slurm {cluster.version}", file=sys.stderr)
        for number, shape in enumerate(SHAPES):
            count = options.jobs // len(SHAPES) + (number < options.jobs % len(SHAPES))
            cluster.submit_many(count, *shape)
        rows, left_out = measure(cluster, options.repeat)
        version = cluster.version
    print(f"Slurm {version}, {options.jobs} pending jobs, medians of {options.repeat}")
    print(f"{'reader':<14}{'CPU s':>8}{'wall s':>8}{'jobs':>7}{'requests':>10}{'MiB':>8}")
    for row in rows:
        requests = sum(row.requests.values())
        print(f"{row.reader:<14}{row.cpu_s:>8.3f}{row.wall_s:>8.3f}{row.jobs:>7}{requests:>10}{row.more_mib:>8.1f}")
    cpu = {row.reader: row.cpu_s for row in rows}
    print(f"CPU of {PLAIN} over text: {cpu[PLAIN] / cpu['text']:.1f}")
    for reader, reason in left_out.items():
        print(f"{reader} left out: {reason}")
    return 0


def measure(cluster: LiveCluster, repeat: int) -> tuple[list[ReaderFigures], dict[str, str]]:
    """Measure every reader that works here, in turn; map the others to the reason."""
    os.environ.update(cluster.env)
    tasks: dict[str, Callable[[], int]] = {PLAIN: _plain}
    left_out: dict[str, str] = {}
    for name in READERS:
        try:
            task = _task(name)
            task()
            tasks[name] = task
        except AdvisorError as err:
            left_out[name] = str(err)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
    jobs: dict[str, int] = {}
    for _ in range(repeat):
        for name, task in tasks.items():
            cpu_s, started = _cpu_s(), time.perf_counter()
            jobs[name] = task()
            times[name].append((_cpu_s() - cpu_s, time.perf_counter() - started))
    rows = [
        ReaderFigures(
            reader=name,
            cpu_s=round(statistics.median(cpu for cpu, _ in times[name]), 4),
            wall_s=round(statistics.median(wall for _, wall in times[name]), 4),
            jobs=jobs[name],
            requests=_requests(cluster, task),
            more_mib=in_own_process("read", "--one", name)["more_mib"],
        )
        for name, task in tasks.items()
    ]
    return rows, left_out


def _task(name: str) -> Callable[[], int]:
    """Return what takes one snapshot, and returns the number of its jobs."""
    if name == PLAIN:
        return _plain

    def snapshot() -> int:
        # A new source each time, as one run of the command line has it: nothing is remembered.
        source = open_source(name, cluster=None, timeout_s=60.0, clock=SystemClock())
        return len(source.snapshot().jobs)

    return snapshot


def _memory(task: Callable[[], int]) -> dict[str, float]:
    before_mib = peak_mib()
    task()
    return {"more_mib": round(peak_mib() - before_mib, 1)}


def _plain() -> int:
    answer = subprocess.run(["squeue", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return len(json.loads(answer.stdout)["jobs"])


def _cpu_s() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _requests(cluster: LiveCluster, task: Callable[[], int]) -> dict[str, int]:
    before = cluster.rpc_counts()
    task()
    after = cluster.rpc_counts()
    return {name: count - before.get(name, 0) for name, count in sorted(after.items()) if count != before.get(name, 0)}
