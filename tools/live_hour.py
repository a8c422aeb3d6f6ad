"""Runs a live cluster under arrivals for an hour with the daemon in mode apply, and checks the outcome.

    python -m tools.live_hour --release 22.05 --minutes 60 --seed 1

Seeded jobs of tens of seconds to minutes arrive: gangs that accept several nodes, gangs over two nodes, small jobs, of
several users. `sadvise serve` runs with a short interval. At the end: every job has ended well or is in the queue; no
lease was out for longer than the delay booked for it, nor is more booked than the guard allows; slurmctld counted no
more requests than the budget allows; the daemon ended cleanly within 5 s; and after `sadvise revert --all` every
pending job has the fields it was submitted with. Prints a table, and exits with 1 if a check fails.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from advisor.backends.diagnostics import decode_load
from advisor.config import Config, load_config
from advisor.domain.actions import NodeRange, SetNodeRange
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease
from advisor.journal import opened
from tools.advice_queue import PRIORITY_LINES
from tools.stage import LiveCluster, uniform_cluster
from tools.stage.arrivals import PAIR, RANGE, SMALL, SPREAD, USERS, GpuRequest, gap_s
from tools.stage.daemon import daemon, end_daemon, log_end, revert_all, write_config
from tools.stage.live_cluster import SDIAG_RPC
from tools.stage.program import add_play, add_release, passing, print_faults, print_figures, summed_up
from tools.stage.sdiag import Cycles, cycles_of
from tools.stage.watch import snapshot_of

NODES: Final = 8
GPUS_PER_NODE: Final = 8
END_S: Final = 5.0
# Requests to slurmctld by jobs, their nodes and submissions; all others are by the daemon.
NOT_OURS: Final = (
    "REQUEST_SUBMIT_BATCH_JOB",
    "REQUEST_COMPLETE_BATCH_SCRIPT",
    "REQUEST_STEP_COMPLETE",
    "REQUEST_COMPLETE_PROLOG",
    "MESSAGE_",
    "REQUEST_PING",
)
MINUTE_S: Final = 60.0
POLL_S: Final = 0.5


# How often each arrives.
WEIGHTS: Final[Mapping[GpuRequest, int]] = {RANGE: 3, PAIR: 5, SPREAD: 2, SMALL: 5}
# Some users know their run times; others ask for a day, and only gangs of the latter gain by waiting for fewer nodes.
LIMITS: Final = ("00:04:00", "00:04:00", "1-00:00:00")
# The GPUs that jobs hold on average as a share of all.
LOAD: Final = 1.15


@dataclass
class Hour:
    """The jobs submitted, and the figures at the end; `faults` are the checks that failed."""

    submitted: dict[int, GpuRequest] = field(default_factory=dict)
    done: int = 0
    waiting: int = 0
    running: int = 0
    rpcs: Counter[str] = field(default_factory=Counter)
    spent_s: float = 0.0
    allowed_s: float = 0.0
    leases: tuple[Lease, ...] = ()
    longest_out_s: float = 0.0
    most_booked_s: float = 0.0
    ended_in_s: float = 0.0
    faults: list[str] = field(default_factory=list)


def hour_cluster(release: str) -> LiveCluster:
    """Return the cluster of the hour, not yet started: two leaf switches of four nodes."""
    return uniform_cluster(release, NODES, extra_lines=PRIORITY_LINES)


def arrive(live: LiveCluster, hour: Hour, chance: random.Random, marks: Path) -> float:
    """Submit a job, and return the seconds until the next one."""
    (request,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
    seconds = chance.choice((15, 25, 40, 60, 90, 150))
    limit = f"--time={chance.choice(LIMITS)}"
    script = f"sleep {seconds}\n: >{marks}/$SLURM_JOB_ID"
    job_id = live.submit(limit, *request.options, script=script, user=chance.choice(USERS))
    hour.submitted[job_id] = request
    return gap_s(chance, request.gpus * seconds, NODES * GPUS_PER_NODE, LOAD)


def play(live: LiveCluster, minutes: float, seed: int, interval_s: float, folder: Path) -> Hour:
    """Run the hour, with its files in a folder, and check jobs and leases at its end."""
    hour, chance, marks = Hour(), random.Random(seed), live.folder / "marks"
    marks.mkdir(exist_ok=True)
    marks.chmod(0o777)
    config = write_config(folder, interval_s)
    settings = load_config(config, {})
    before, began = live.cycles(), time.monotonic()
    with daemon(live, config, folder / "log") as process:
        next_s = 0.0
        for passed_s in passing(minutes * MINUTE_S, POLL_S, process):
            while next_s <= passed_s:
                next_s += arrive(live, hour, chance, marks)
        if process.poll() is not None:
            hour.faults += end_daemon(process, END_S)
            return hour
        _count_requests(live, hour, before, settings, time.monotonic() - began)
        asked = time.monotonic()
        hour.faults += end_daemon(process, 4 * END_S)
        hour.ended_in_s = time.monotonic() - asked
    _look(live, hour, config, settings, marks)
    return hour


def _count_requests(live: LiveCluster, hour: Hour, before: Cycles, settings: Config, passed_s: float) -> None:
    """Compare the time that slurmctld took for the daemon's requests with the time that the budget allowed by then."""
    shown = live.run("sdiag")
    hour.rpcs = Counter(cycles_of(shown).requests)
    # The request by which `before` was read is this program's own.
    hour.rpcs.subtract(before.requests)
    hour.rpcs[SDIAG_RPC] -= 1
    hour.rpcs = +hour.rpcs
    for name in [name for name in hour.rpcs if name.startswith(NOT_OURS)]:
        del hour.rpcs[name]
    means_s = decode_load(shown).request_times_s
    hour.spent_s = sum(count * means_s.get(name, 0.0) for name, count in hour.rpcs.items())
    hour.allowed_s = settings.budget.time_ratio * (passed_s + MINUTE_S)
    if hour.spent_s > hour.allowed_s:
        hour.faults.append(f"{hour.spent_s:.2f} s of slurmctld's time are more than the {hour.allowed_s:.2f} s allowed")


def _look(live: LiveCluster, hour: Hour, config: Path, settings: Config, marks: Path) -> None:
    """Revert everything, and check jobs and leases."""
    if hour.ended_in_s > END_S:
        hour.faults.append(f"the daemon took {hour.ended_in_s:.1f} s to end")
    reverted = revert_all(live, config)
    hour.faults += [reverted.fault] if reverted.fault else []
    hour.faults += [f"unsettled after revert --all: {row}" for row in reverted.changes if row["done"] == "unsettled"]
    snapshot = snapshot_of(live)
    left = {job.job_id: job for job in snapshot.jobs}
    for job in snapshot.jobs:
        if job.is_pending and job.job_id in hour.submitted:
            hour.faults.extend(_strays(job, hour.submitted[job.job_id]))
    hour.waiting = sum(job.is_pending for job in snapshot.jobs)
    hour.running = len(snapshot.jobs) - hour.waiting
    hour.done = sum((marks / str(job_id)).exists() for job_id in hour.submitted)
    lost = [job_id for job_id in hour.submitted if job_id not in left and not (marks / str(job_id)).exists()]
    hour.faults.extend(f"job {job_id} ({hour.submitted[job_id].name}) is gone and did not end well" for job_id in lost)
    with opened(Path(settings.journal.file), wait_s=5.0) as journal:
        hour.faults.extend(f"still open after revert --all: {lease}" for lease in journal.leases() if _is_ours(lease))
        hour.leases = (*journal.closed(frozenset(hour.submitted)), *journal.leases())
    _check_delays(hour, settings)


def _is_ours(lease: Lease) -> bool:
    return lease.state.name != "HANDS_OFF"


def _strays(job: Job, request: GpuRequest) -> Iterator[str]:
    """Yield the fields in which a pending job differs from its submission."""
    held = (
        job.nice,
        job.gang.switches,
        job.time_min_s,
        NodeRange(low=job.gang.nodes_min, high=job.gang.nodes_max or 0),
    )
    wanted = (0, None, None, request.nodes)
    for name, value, theirs in zip(("nice", "switches", "time_min", "node range"), held, wanted, strict=True):
        if value != theirs:
            yield f"job {job.job_id} ({request.name}) is left with {name} {value}, submitted was {theirs}"


def _check_delays(hour: Hour, settings: Config) -> None:
    """Check that no hold outlasted the delay booked for it, and no job has more booked than the guard allows."""
    booked = Counter[int]()
    # The next round reverts a hold that is due, and can have to wait for the round that runs.
    slack_s = 2 * settings.daemon.interval_s + settings.daemon.deadline_s
    for lease in hour.leases:
        if lease.ending is Ending.NOT_APPLIED:
            continue
        booked[lease.job_id] += round(lease.added_delay_s)
        out_s = (lease.ended_time or lease.applied_time) - lease.applied_time
        if isinstance(lease.action, SetNodeRange):
            hour.longest_out_s = max(hour.longest_out_s, out_s)
            if out_s > lease.added_delay_s + slack_s:
                hour.faults.append(
                    f"the hold of job {lease.job_id} was out for {out_s:.0f} s, booked were {lease.added_delay_s:.0f} s"
                )
    hour.most_booked_s = max(booked.values(), default=0)
    if hour.most_booked_s > settings.guard.max_added_delay_s:
        hour.faults.append(f"{hour.most_booked_s:.0f} s of delay are booked for one job")


def report(hour: Hour) -> None:
    """Print the figures and the faults."""
    changes = Counter(f"{lease.lever} {lease.ending or lease.state}" for lease in hour.leases)
    rows: Sequence[tuple[str, object]] = (
        ("jobs submitted", len(hour.submitted)),
        ("  ended well", hour.done),
        ("  pending or running at the end", hour.waiting + hour.running),
        ("leases", len(hour.leases)),
        *((f"  {name}", count) for name, count in sorted(changes.items())),
        ("longest hold, s", round(hour.longest_out_s)),
        ("most delay booked for one job, s", round(hour.most_booked_s)),
        ("requests of the daemon, by sdiag", hour.rpcs.total()),
        *((f"  {name}", count) for name, count in sorted(hour.rpcs.items())),
        ("slurmctld's time for them, in seconds", f"{hour.spent_s:.2f}"),
        ("time that the budget allowed, in seconds", f"{hour.allowed_s:.2f}"),
        ("end after SIGTERM, s", round(hour.ended_in_s, 1)),
    )
    print_figures(rows)
    print_faults(hour.faults)


def main() -> int:
    """Run the hour and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.live_hour", description=__doc__.splitlines()[0])
    add_release(parser)
    add_play(parser, minutes=60.0, interval_s=15.0)
    args = parser.parse_args()
    with hour_cluster(args.release) as live, tempfile.TemporaryDirectory() as folder:
        hour = play(live, args.minutes, args.seed, args.interval, Path(folder))
        version = live.version
        end_of_log = log_end(Path(folder) / "log", 40)
    report(hour)
    if hour.faults:
        print(f"the daemon's log ends:\n{end_of_log}", file=sys.stderr)
    print(summed_up(f"Slurm {version}", args.minutes, args.seed, len(hour.faults)))
    return 1 if hour.faults else 0


if __name__ == "__main__":
    sys.exit(main())
