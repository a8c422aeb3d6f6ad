"""Measures what changes cost slurmctld: two clusters with the same long queue, the daemon in mode apply on one of them.

python -m tools.bench changes [--release 22.05] [--jobs 1000] [--minutes 8] [--interval 60] [--run-s 120]

Both clusters are kept at this number of pending jobs: for each job that starts another one is submitted.
Slurm's own defaults decide how often it looks for jobs to start. Prints the CPU time of both slurmctld, the requests
that the daemon added with their time by sdiag, and the changes per started job.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.stage import LiveCluster, LiveSlurmError, uniform_cluster
from tools.stage.arrivals import USERS, on_one_node
from tools.stage.daemon import daemon, write_config
from tools.stage.program import add_play, add_release, passing
from tools.stage.watch import leases_of, touched

NODES: Final = 8
# Slurm's defaults.
SCHEDULER_PARAMETERS: Final = "sched_interval=60,bf_interval=30"
PRIORITY_LINES: Final = ("PriorityWeightJobSize=0",)
UPDATE: Final = "REQUEST_UPDATE_JOB"
SUBMITTERS: Final = 4
REFILL_S: Final = 2.0
_ROW: Final = "{:<44}{:>12}{:>12}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_play(parser, minutes=8.0, interval_s=60.0)
    add_release(parser)
    parser.add_argument("--jobs", type=int, default=1000, help="pending jobs, default: %(default)s")
    parser.add_argument("--run-s", type=float, default=120.0, help="mean run time of a job, default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """Measure one release and print the figures."""
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            clusters = [
                uniform_cluster(
                    options.release,
                    NODES,
                    scheduler_parameters=SCHEDULER_PARAMETERS,
                    extra_lines=PRIORITY_LINES,
                )
                for _ in range(2)
            ]
            for live in clusters:
                stack.enter_context(live)
            queues = [
                FullQueue(live, folder / f"marks{number}", options.seed, options.run_s)
                for number, live in enumerate(clusters)
            ]
            _measure(queues, options, folder)
    except LiveSlurmError as err:
        print(f"bench changes: {err}", file=sys.stderr)
        return 1
    return 0


class FullQueue:
    """Keeps a cluster at a number of pending jobs; a job leaves a file as it starts, so that none is asked for."""

    def __init__(self, live: LiveCluster, marks: Path, seed: int, run_s: float) -> None:
        """Take the folder for the files of started jobs, and the mean run time."""
        self.live = live
        self._marks, self._chance, self._run_s = marks, random.Random(seed), run_s
        self._submitted = 0
        marks.mkdir()
        # The jobs run as different users.
        marks.chmod(0o777)
        marks.parent.chmod(0o755)

    @property
    def started(self) -> int:
        """The number of jobs that have started."""
        return sum(1 for _ in self._marks.iterdir())

    def fill(self, pending: int, pool: ThreadPoolExecutor) -> None:
        """Submit as many jobs as are missing."""
        missing = pending + self.started - self._submitted
        self._submitted += max(0, missing)
        # Drawn in one thread, in the order of the sequence.
        list(pool.map(self._submit, [self._draw() for _ in range(missing)]))

    def _draw(self) -> tuple[str, float, int, int]:
        gpus = self._chance.choice((1, 1, 2, 2, 4, 8))
        run_s = self._chance.expovariate(1.0 / self._run_s)
        # Users ask for more than they need.
        limit_min = max(1, round(run_s * self._chance.uniform(1.5, 6.0) / 60.0))
        return self._chance.choice(USERS), round(min(run_s, 50.0 * limit_min), 1), limit_min, gpus

    def _submit(self, drawn: tuple[str, float, int, int]) -> None:
        user, run_s, limit_min, gpus = drawn
        options = on_one_node("one", gpus).options
        self.live.submit(
            f"--time={limit_min}", *options, script=f": >{self._marks}/$SLURM_JOB_ID\nsleep {run_s}", user=user
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerCosts:
    """Holds what a slurmctld spent: CPU seconds, and for each kind of request its count and time in seconds."""

    cpu_s: float
    count: Mapping[str, int]
    time_s: Mapping[str, float]
    started: int


def _measure(queues: Sequence[FullQueue], options: argparse.Namespace, folder: Path) -> None:
    plain, advised = queues
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        for queue in queues:
            queue.fill(options.jobs, pool)
        before_s = [_cpu_s(queue.live) for queue in queues]
        started = [queue.started for queue in queues]
        for queue in queues:
            queue.live.run("sdiag", "--reset")
        config = write_config(folder, options.interval)
        began = time.perf_counter()
        with daemon(advised.live, config, folder / "log") as process:
            for _ in passing(60.0 * options.minutes, REFILL_S, process):
                for queue in queues:
                    queue.fill(options.jobs, pool)
            passed_s = time.perf_counter() - began
            if process.poll() is not None:
                raise LiveSlurmError(f"the daemon ended: {(folder / 'log').read_text()[-500:]}")
            costs = [
                _costs(queue, before, at_first)
                for queue, before, at_first in zip(queues, before_s, started, strict=True)
            ]
            pending = [queue.live.count("PENDING") for queue in queues]
    changed = len({lease.job_id for lease in touched(leases_of(folder / "journal.sqlite"))})
    _report(costs, pending, passed_s, changed, options, plain.live.version)


def _costs(queue: FullQueue, before_s: float, started: int) -> ControllerCosts:
    cycles = queue.live.cycles()
    return ControllerCosts(
        cpu_s=_cpu_s(queue.live) - before_s,
        count=cycles.requests,
        time_s=cycles.request_s_by_type,
        started=queue.started - started,
    )


def _cpu_s(live: LiveCluster) -> float:
    """Return the CPU time of a cluster's slurmctld so far, in seconds."""
    conf = str(live.folder / "slurm.conf").encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            argv = (folder / "cmdline").read_bytes().split(b"\0")
            if argv[0].endswith(b"slurmctld") and conf in argv:
                # After the name in brackets, which can hold spaces, user and system time are fields 12 and 13.
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except OSError:
            continue
    raise LiveSlurmError(f"no slurmctld with {conf.decode()} runs")


def _report(
    costs: Sequence[ControllerCosts],
    pending: Sequence[int],
    wall_s: float,
    changed: int,
    options: argparse.Namespace,
    version: str,
) -> None:
    plain, advised = costs
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"Slurm {version}, {options.jobs} pending jobs, {wall_s:.0f} s, a round every {options.interval:g} s, "
        f"{os.cpu_count()} CPUs with load averages {load}"
    )
    print(_ROW.format("", "plain", "advised"))
    print(_ROW.format("pending at the end", *pending))
    print(_ROW.format("jobs started", plain.started, advised.started))
    print(_ROW.format("CPU of slurmctld, s", *(f"{cost.cpu_s:.2f}" for cost in costs)))
    print(_ROW.format("  share of one core, %", *(f"{100 * cost.cpu_s / wall_s:.2f}" for cost in costs)))
    kinds = sorted(
        {name for cost in costs for name in cost.count},
        key=lambda name: -abs(advised.time_s.get(name, 0.0) - plain.time_s.get(name, 0.0)),
    )
    for name in kinds:
        if advised.count.get(name, 0) > plain.count.get(name, 0) or name == UPDATE:
            print(_ROW.format(f"{name}, requests", *(cost.count.get(name, 0) for cost in costs)))
            print(_ROW.format("  time by sdiag, s", *(f"{cost.time_s.get(name, 0.0):.3f}" for cost in costs)))
    update_s, updates = advised.time_s.get(UPDATE, 0.0), advised.count.get(UPDATE, 0)
    print(f"time of slurmctld for changes: {100 * update_s / wall_s:.3f} % of the time, {updates} updates")
    print(f"changes: {changed} jobs changed, {updates / max(1, advised.started):.2f} updates for each started job")
