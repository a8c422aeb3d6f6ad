"""The table of formats, and the import of a file in one of them as one trace that starts at 0."""

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, TextIO

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.errors import TraceError
from advisor.files import STANDARD_STREAM
from advisor.sim.traces.importing import published, sacct
from advisor.sim.traces.importing.workload_rows import (
    ImportOptions,
    RowWithoutJob,
    SourceJob,
    WorkloadFile,
    WorkloadRow,
)
from advisor.sim.traces.text_file import opened_text
from advisor.sim.traces.trace import Trace
from advisor.sim.traces.trace_columns import COLUMNS, ColumnKind
from advisor.sim.traces.trace_table import BadRow, BadRows, TraceTable, Values

_CHUNK_JOBS: Final = 20_000
# A longer one would not fit the ids of a trace.
_ID_DIGITS: Final = 18

Reader = Callable[[WorkloadFile], Iterator[WorkloadRow]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A trace, and the counts of rows left out of it.

    `left_out` maps reasons to counts; `zero_time` is the trace's own zero on the clock of its source.
    """

    trace: Trace
    left_out: Mapping[str, int]
    bad: BadRows
    zero_time: float


def collect(
    path: Path, read: Reader, options: ImportOptions, *, name: str, skip_bad: bool, stream: TextIO | None = None
) -> Imported:
    """Read a file, or an open stream that `path` names, in one format.

    Raises `TraceError` if it is unreadable, holds bad rows or holds no job.
    """
    table = TraceTable()
    left_out: Counter[str] = Counter()
    ids: list[str] = []
    with opened_text(path) if stream is None else nullcontext(stream) as text:
        rows = read(WorkloadFile(path=path, stream=text, options=options))
        jobs = _jobs(rows, table.bad, left_out, least_gpus=0 if options.cpu_jobs else 1)
        while chunk := list(islice(jobs, _CHUNK_JOBS)):
            columns = _columns(table, chunk)
            # The place in the source serves as the id until it is known whether the source's own ids will do.
            columns["job_id"] = np.arange(len(ids), len(ids) + len(chunk))
            table.add(columns, np.array([job.line for job in chunk]))
            ids += [job.job_id for job in chunk]
    trace = table.trace(name)
    table.bad.refuse(path, skip_bad=skip_bad)
    if not len(trace):
        reasons = ", ".join(f"{count} {why}" for why, count in sorted(left_out.items()))
        shown = f" (left out: {reasons})" if reasons else ""
        raise TraceError(f"{path}: holds no {'job' if options.cpu_jobs else 'GPU job'} that ran{shown}: export others")
    zero_time = float(trace.jobs["submit_time"].min())
    return Imported(
        trace=replace(trace, jobs=_rebased(trace.jobs, ids, zero_time)),
        left_out=dict(sorted(left_out.items())),
        bad=table.bad,
        zero_time=zero_time,
    )


def _jobs(rows: Iterable[WorkloadRow], bad: BadRows, left_out: Counter[str], *, least_gpus: int) -> Iterator[SourceJob]:
    """Yield the jobs among rows, and count the others."""
    seen: set[str] = set()
    for row in rows:
        match row:
            case BadRow():
                bad.add(row)
            case RowWithoutJob():
                left_out[row.why] += 1
            case SourceJob() if row.job_id in seen:
                bad.add(BadRow(line=row.line, why=f"job {row.job_id[:40]!a} stands in an earlier line"))
            case SourceJob() if row.gpus < least_gpus:
                why = f"column gpus: '{row.gpus}' is not a whole number from {least_gpus} on"
                bad.add(BadRow(line=row.line, why=why))
            case SourceJob():
                if row.job_id:
                    seen.add(row.job_id)
                yield row


def _columns(table: TraceTable, jobs: list[SourceJob]) -> dict[str, Values]:
    """Convert jobs to the columns of a trace, without ids."""
    columns: dict[str, Values] = {}
    for name, column in COLUMNS.items():
        if name == "job_id" or not hasattr(jobs[0], name):
            continue
        values = [getattr(job, name) for job in jobs]
        if column.default_from is not None:
            source = column.default_from
            values = [value or getattr(job, source) for value, job in zip(values, jobs, strict=True)]
        match column.kind:
            case ColumnKind.NAME:
                columns[name] = table.names[name].codes(values)
            case ColumnKind.WHOLE:
                columns[name] = np.array(values, dtype=np.int64)
            case ColumnKind.NUMBER:
                columns[name] = np.array(values, dtype=np.float64)
    return columns


def _rebased(jobs: NDArray[np.void], ids: list[str], zero_time: float) -> NDArray[np.void]:
    """Start the clock at the first submission, and number the jobs as in the source if it has numbers."""
    own = [ids[place] for place in jobs["job_id"].tolist()]
    if all(job_id.isascii() and job_id.isdecimal() and len(job_id) <= _ID_DIGITS for job_id in own):
        numbers = [int(job_id) for job_id in own]
        if len(set(numbers)) == len(numbers):
            jobs["job_id"] = numbers
    jobs["submit_time"] -= zero_time
    jobs["recorded_start_time"] -= zero_time
    return jobs[np.lexsort((jobs["job_id"], jobs["submit_time"]))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format; `filled` names the columns that our own tables fill in, so that they count as sampled."""

    read: Reader
    sentence: str
    filled: tuple[str, ...] = ()
    takes_virtual_cluster: bool = False
    takes_cpu_jobs: bool = False


FORMATS: Final[Mapping[str, Format]] = {
    "sacct": Format(read=sacct.rows, sentence="Slurm accounting, sacct -P or sacct --json", takes_cpu_jobs=True),
    "swf": Format(read=published.swf, sentence="standard workload format, processors read as GPUs"),
    "itp": Format(read=published.itp, sentence="Microsoft ITP clusters of 2021"),
    "philly": Format(read=published.philly, sentence="Microsoft Philly clusters of 2017", takes_virtual_cluster=True),
    "drac": Format(read=published.drac, sentence="Slurm jobs of the Digital Research Alliance of Canada"),
    "pollux": Format(
        read=published.pollux, sentence="Pollux workloads, run times from a table", filled=("run_time_s",)
    ),
    "muri": Format(read=published.muri, sentence="Muri traces"),
}


def import_trace(
    format_name: str,
    path: Path,
    *,
    options: ImportOptions | None = None,
    name: str = "",
    skip_bad: bool = False,
    read: Reader | None = None,
) -> Imported:
    """Read a workload in a format of `FORMATS`; `name` names the trace, else the file does.

    With `read`, take the rows from that in place of the file; `path` then only names it.

    Raises `TraceError` where the file cannot be read in this format, or holds bad rows and `skip_bad` is not set.
    """
    wanted = FORMATS.get(format_name)
    if wanted is None:
        raise TraceError(f"format {format_name!a} is not known: choose one of {', '.join(FORMATS)}")
    options = options or ImportOptions()
    if options.virtual_cluster is not None and not wanted.takes_virtual_cluster:
        raise TraceError(f"{path}: {format_name} has no virtual clusters: leave --vc out")
    if options.cpu_jobs and not wanted.takes_cpu_jobs:
        raise TraceError(f"{path}: {format_name} has no jobs without GPUs: leave --cpu-jobs out")
    file_name = "standard input" if path == STANDARD_STREAM else path.name
    own_name = file_name.removesuffix(".gz").rpartition(".")[0] or file_name
    stream = None if read is None else io.StringIO()
    imported = collect(path, read or wanted.read, options, name=name or own_name, skip_bad=skip_bad, stream=stream)
    parts = [
        f"{format_name} {file_name}",
        f"zero is {imported.zero_time:.0f}",
        *([f"virtual cluster {options.virtual_cluster}"] if options.virtual_cluster else []),
        *([imported.bad.in_words()] if imported.bad.count else []),
    ]
    return replace(imported, trace=replace(imported.trace, sampled=wanted.filled, note="; ".join(parts)))
