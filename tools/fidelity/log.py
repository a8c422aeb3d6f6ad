"""Reads what slurmctld's own log says of a workload, to the millisecond."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from tools.fidelity.recording import Pass, Scheduler

STAMP = re.compile(r"^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})\] (.*)$")
UP = re.compile(r"slurmctld version \S+ started on cluster")
# A task of an array is written as 5_2(7), with its own id last.
JOB = r"JobId=(?:\d+_\w+\()?(\d+)\)?"
SUBMITTED = re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+)")
STARTED_BY_MAIN = re.compile(rf"sched: Allocate {JOB} ")
STARTED_BY_BACKFILL = re.compile(rf"_start_job: Started {JOB} in ")
# What 26.05 writes of a start by backfill; a start by the main scheduler writes the line above first.
LAUNCHED = re.compile(rf"slurm_cred_create: creating credential for {JOB}")
ENDED = re.compile(rf"_job_complete: {JOB} done")
MAIN_PASS = re.compile(r"Running job scheduler for (?:default depth|full queue)")
BACKFILL_PASS = re.compile(r"_attempt_backfill: beginning")
RECALCULATED = re.compile(r"decay_apply_weighted_factors: priority for job")
# Priorities are computed again once a minute, all within milliseconds.
SAME_RECALCULATION_S = 1.0


@dataclass(slots=True, kw_only=True)
class ControllerLog:
    """Times in POSIX seconds, by job id where they belong to jobs."""

    start_time: float = 0.0
    submits: dict[int, float] = field(default_factory=dict)
    starts: dict[int, Pass] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)
    passes: list[Pass] = field(default_factory=list)
    recalculations: list[float] = field(default_factory=list)


def read_log(lines: Iterable[str]) -> ControllerLog:
    """Read a log from the last start of slurmctld on; it needs the level debug2."""
    log = ControllerLog()
    for time, text in _stamped(lines):
        if UP.search(text):
            log = ControllerLog(start_time=time)
        elif MAIN_PASS.search(text):
            log.passes.append(Pass(scheduler=Scheduler.MAIN, time=time))
        elif BACKFILL_PASS.search(text):
            log.passes.append(Pass(scheduler=Scheduler.BACKFILL, time=time))
        elif RECALCULATED.search(text):
            if not log.recalculations or time - log.recalculations[-1] > SAME_RECALCULATION_S:
                log.recalculations.append(time)
        else:
            _read_job(log, time, text)
    return log


def _read_job(log: ControllerLog, time: float, text: str) -> None:
    """Note the submission, the start or the end of a job."""
    if match := SUBMITTED.search(text):
        log.submits[int(match[1])] = time
    elif match := STARTED_BY_MAIN.search(text):
        log.starts[int(match[1])] = Pass(scheduler=Scheduler.MAIN, time=time)
    elif match := STARTED_BY_BACKFILL.search(text):
        log.starts[int(match[1])] = Pass(scheduler=Scheduler.BACKFILL, time=time)
    elif match := LAUNCHED.search(text):
        log.starts.setdefault(int(match[1]), Pass(scheduler=Scheduler.BACKFILL, time=time))
    elif match := ENDED.search(text):
        log.ends[int(match[1])] = time


def _stamped(lines: Iterable[str]) -> Iterator[tuple[float, str]]:
    for line in lines:
        if match := STAMP.match(line):
            # Slurm writes local time without saying so.
            yield datetime.fromisoformat(match[1]).astimezone().timestamp(), match[2]
