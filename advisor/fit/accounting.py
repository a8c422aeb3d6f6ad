"""Reads ended jobs from Slurm's accounting, as `sacct -P` prints them; unusable rows are counted, never guessed."""

import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import numpy as np

from advisor.backends.spelling import CACHED_TEXTS, instant, is_unset, optional_text
from advisor.backends.tres import NO_TRES, Tres, tres
from advisor.errors import DecodeError
from advisor.fit.fitted import Source
from advisor.predict.run_time_table import EndedJobs, RunTimeTable
from advisor.sim.importing.sacct import ELAPSED, LIMITS, SEPARATOR, asked_for, elapsed_s, header_of, limit_s
from advisor.sim.text_file import opened_text

if TYPE_CHECKING:
    from advisor.backends.process import Commands

# The name comes last because it is the only text that can contain the separator.
FIELDS: Final = "User,Account,Partition,QOS,Submit,Start,End,ElapsedRaw,TimelimitRaw,State,ReqTRES,AllocTRES,JobName"
COMMAND: Final = f"SLURM_TIME_FORMAT=%s sacct -a -X -P -S START -o {FIELDS}"
# The most rows that are read, the latest of a file: months of a large site, and some hundred MiB of memory.
ROWS_KEPT: Final = 500_000

_NEEDED: Final = (("User", "Account"), ("Submit",), ("Start",), ELAPSED, LIMITS, ("State",), ("ReqTRES", "AllocTRES"))
_NOT_ENDED: Final = ("RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "REQUEUED", "RESIZING", "STAGE_OUT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """Ended jobs that asked for GPUs, and the number of rows left out, by reason."""

    ended: EndedJobs
    source: Source
    rows: int
    left_out: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Ended:
    user: str
    account: str
    name: str
    partition: str
    qos: str
    asked: Tres
    limit_s: float
    submit_time: float
    run_s: float
    end_time: float
    state: str


def read_accounting(path: Path, *, rows_kept: int = ROWS_KEPT) -> Accounting:
    """Read the output of sacct from a file, plain or gzip; `-` is standard input.

    Raises `TraceError` if the file cannot be read or holds no output of sacct.
    """
    with opened_text(path) as stream:
        return _read(stream, str(path), rows_kept)


def ask_accounting(commands: "Commands", *, since: str, rows_kept: int = ROWS_KEPT) -> Accounting:
    """Run sacct for the jobs of all users since `since`, a time in its spelling; raises `SlurmError`."""
    return _read(asked_for(FIELDS, commands, since=since), "sacct", rows_kept)


def _read(stream: TextIO, origin: str, rows_kept: int) -> Accounting:
    first = stream.readline()
    header = header_of(first, FIELDS, _NEEDED, origin, COMMAND)
    digest = hashlib.sha256(first.encode(errors="surrogateescape"))
    # sacct prints the oldest rows first, so that only the rows kept at the end of the file are decoded.
    latest: deque[str] = deque(maxlen=rows_kept)
    count = 0
    for line in stream:
        digest.update(line.encode(errors="surrogateescape"))
        if not line.isspace():
            count += 1
            latest.append(line)
    left_out: Counter[str] = Counter()
    if count > rows_kept:
        left_out[f"before the latest {rows_kept:,}"] = count - rows_kept
    ended = _table(list(_decoded(latest, header, left_out)))
    # The digest is of the unpacked text: the same accounting has the same digest however it is packed.
    source = Source(name=Path(origin).name, sha256=digest.hexdigest(), rows=count)
    return Accounting(ended=ended, source=source, rows=count, left_out=dict(left_out))


def _decoded(lines: Iterable[str], header: list[str], left_out: Counter[str]) -> Iterator[_Ended]:
    last = len(header) - 1
    for line in lines:
        values = line.rstrip("\r\n").split(SEPARATOR, last)
        if len(values) != len(header):
            left_out["another number of columns than the header"] += 1
            continue
        cells = dict(zip(header, values, strict=True))
        if "." in cells.get("JobID", ""):
            left_out["job steps"] += 1
            continue
        try:
            job = _job(cells)
        except DecodeError:
            left_out["a field that is not as sacct prints it"] += 1
            continue
        if isinstance(job, str):
            left_out[job] += 1
        else:
            yield job


def _job(cells: Mapping[str, str]) -> _Ended | str:
    """Decode one job, or return the reason for leaving it out as text."""
    # CANCELLED is followed by the user who cancelled the job.
    state = next(iter(cells["State"].split()), "")
    submit_time, start_time = instant(cells["Submit"], field="Submit"), instant(cells["Start"], field="Start")
    if state.startswith(_NOT_ENDED):
        return "not ended"
    if submit_time is None or start_time is None:
        return "never started"
    asked = _tres(cells.get("ReqTRES", "") or cells.get("AllocTRES", ""))
    if not asked.gpus:
        return "without GPUs"
    run_s, asked_s = elapsed_s(cells), limit_s(cells)
    return _Ended(
        user=optional_text(cells.get("User", "")),
        account=optional_text(cells.get("Account", "")),
        name=cells.get("JobName", ""),
        partition=optional_text(cells.get("Partition", "")),
        qos=optional_text(cells.get("QOS", "")),
        asked=asked,
        limit_s=np.nan if asked_s is None else asked_s,
        submit_time=submit_time,
        run_s=run_s,
        end_time=start_time + run_s,
        state=state,
    )


@lru_cache(CACHED_TEXTS)
def _tres(text: str) -> Tres:
    return NO_TRES if is_unset(text) else tres(text, field="ReqTRES")


def _table(jobs: list[_Ended]) -> EndedJobs:
    def numbers(values: Iterable[float | int | None]) -> np.ndarray:
        return np.array([*values], dtype=np.float64)  # numpy reads None as NaN

    return EndedJobs(
        jobs=RunTimeTable(
            user=tuple(job.user for job in jobs),
            account=tuple(job.account for job in jobs),
            name=tuple(job.name for job in jobs),
            partition=tuple(job.partition for job in jobs),
            qos=tuple(job.qos for job in jobs),
            gpus=numbers(sum(gpus.count for gpus in job.asked.gpus or ()) for job in jobs),
            cpus=numbers(job.asked.cpus for job in jobs),
            nodes=numbers(job.asked.nodes for job in jobs),
            memory_mib=numbers(job.asked.memory_mib for job in jobs),
            limit_s=numbers(job.limit_s for job in jobs),
            submit_time=numbers(job.submit_time for job in jobs),
            waited_s=np.zeros(len(jobs)),
            elapsed_s=np.zeros(len(jobs)),
        ),
        run_s=numbers(job.run_s for job in jobs),
        end_time=numbers(job.end_time for job in jobs),
        state=tuple(job.state for job in jobs),
    )
