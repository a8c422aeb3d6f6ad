"""Reads ended jobs from Slurm's accounting, as sacct prints it; unusable rows are counted, never guessed."""

import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from advisor.backends.tres import NO_TRES, Tres
from advisor.domain.dataclass import dataclass
from advisor.fit.fitted import Source
from advisor.predict.run_time_features import EndedJobs, RunTimeTable
from advisor.sim.traces.importing.accounted import Accounted, Record
from advisor.sim.traces.importing.sacct import LIMITS, asked, records
from advisor.sim.traces.importing.workload_rows import RowWithoutJob
from advisor.sim.traces.text_file import opened_text
from advisor.sim.traces.trace_table import BadRow

if TYPE_CHECKING:
    from advisor.backends.process import Commands

# The most jobs that are kept, the latest of a file: months of a large site, and some hundred MiB of memory.
JOBS_KEPT: Final = 500_000

_NEEDED: Final = (("User", "Account"), LIMITS)
_NOT_ENDED: Final = ("RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "REQUEUED", "RESIZING", "STAGE_OUT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """Ended jobs that asked for GPUs, and the number of rows left out, by reason."""

    ended: EndedJobs
    source: Source
    rows: int
    left_out: Mapping[str, int]


def read_accounting(path: Path, *, jobs_kept: int = JOBS_KEPT) -> Accounting:
    """Read the output of sacct from a file, plain or gzip; `-` is standard input.

    Raises `TraceError` if the file cannot be read, holds no output of sacct, or text with columns that users write.
    """
    with opened_text(path) as stream:
        return _read(records(path, stream, more=_NEEDED, allow_written=False), path.name, jobs_kept)


def ask_accounting(commands: "Commands", *, since: str, jobs_kept: int = JOBS_KEPT) -> Accounting:
    """Run sacct for the jobs of all users since `since`, a time in its spelling; raises `SlurmError`."""
    return _read(asked(commands, since=since), "sacct", jobs_kept)


def _read(rows: Iterable[Record], name: str, jobs_kept: int) -> Accounting:
    # sacct prints the oldest jobs first.
    latest: deque[Accounted] = deque(maxlen=jobs_kept)
    left_out: Counter[str] = Counter()
    count = ended = 0
    for count, row in enumerate(rows, start=1):  # noqa: B007 (the last is the count)
        why = _why_left_out(row)
        if isinstance(row, Accounted) and not why:
            ended += 1
            latest.append(row)
        else:
            left_out[why] += 1
    if ended > jobs_kept:
        left_out[f"before the latest {jobs_kept:,}"] = ended - jobs_kept
    # Text and JSON of the same jobs have the same digest.
    digest = hashlib.sha256()
    for job in latest:
        texts = (job.user, job.account, job.name, job.partition, job.qos)
        numbers = (_asked(job), job.limit_s, job.submit_time, job.start_time, job.elapsed_s)
        digest.update(repr((texts, numbers)).encode())
    source = Source(name=name, sha256=digest.hexdigest(), rows=count)
    return Accounting(ended=_table(list(latest)), source=source, rows=count, left_out=dict(left_out))


def _why_left_out(row: Record) -> str:
    """Return why a row is no ended job that asked for GPUs, "" if it is one."""
    match row:
        case BadRow():
            return "not as sacct prints them"
        case RowWithoutJob():
            return row.why
        case Accounted():
            if any(state.startswith(_NOT_ENDED) for state in row.states):
                return "not ended"
            if row.start_time is None:
                return "never started"
            return "" if _asked(row).gpus else "without GPUs"


def _asked(job: Accounted) -> Tres:
    return job.held if job.asked == NO_TRES else job.asked


def _table(jobs: list[Accounted]) -> EndedJobs:
    def numbers(values: Iterable[float | int | None]) -> np.ndarray:
        return np.array([*values], dtype=np.float64)  # numpy reads None as NaN

    return EndedJobs(
        jobs=RunTimeTable(
            user=tuple(job.user for job in jobs),
            account=tuple(job.account for job in jobs),
            name=tuple(job.name for job in jobs),
            partition=tuple(job.partition for job in jobs),
            qos=tuple(job.qos for job in jobs),
            gpus=numbers(sum(gpus.count for gpus in _asked(job).gpus or ()) for job in jobs),
            cpus=numbers(_asked(job).cpus for job in jobs),
            nodes=numbers(_asked(job).nodes for job in jobs),
            memory_mib=numbers(_asked(job).memory_mib for job in jobs),
            limit_s=numbers(job.limit_s for job in jobs),
            submit_time=numbers(job.submit_time for job in jobs),
            waited_s=np.zeros(len(jobs)),
            elapsed_s=np.zeros(len(jobs)),
        ),
        run_s=numbers(job.elapsed_s for job in jobs),
        end_time=numbers((job.start_time or 0.0) + job.elapsed_s for job in jobs),
        state=tuple(min(job.states, default="") for job in jobs),
    )
