"""Convert the rows of any format to one trace that starts at 0, and count rows that did not become a job."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final, TextIO

import numpy as np
from numpy.typing import NDArray

from advisor.errors import TraceError
from advisor.sim.traces.bad_rows import BadRow, BadRows
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
from advisor.sim.traces.trace_table import TraceTable, Values

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
