"""The rows of a foreign workload: each is a job, a row without a job to replay, or a bad row."""

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Final, TextIO

from advisor.domain.dataclass import dataclass
from advisor.errors import DecodeError, TraceError
from advisor.sim.traces.trace_table import BadRow

_WHOLE_MOST: Final = 10**15
_SHOWN: Final = 40
# What the readers of a live queue advise about a text that they do not know; of no use to a file.
_LIVE_ADVICE: Final = ": this Slurm release"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceJob:
    """One job as its source describes it, on the source's own clock; an empty `job_id` asks for a number.

    `gpus_min` and `gpus_max` of 0 mean a rigid job. Other defaults are those of the trace.
    """

    line: int
    job_id: str
    submit_time: float
    run_time_s: float
    gpus: int
    gpus_min: int = 0
    gpus_max: int = 0
    nodes_min: int = 0
    nodes_max: int = 0
    cpus_per_gpu: int = 0
    memory_mib_per_gpu: int = 0
    time_limit_s: float = math.inf
    gpu_type: str = ""
    model: str = ""
    user: str = ""
    account: str = ""
    qos: str = ""
    checkpoint_interval_s: float = 0.0
    recorded_start_time: float = math.nan
    partition: str = ""
    array_id: int = 0
    dependency: str = ""
    name: str = ""
    cpus: int = 0
    memory_mib: int = 0
    features: str = ""
    reservation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWithoutJob:
    """A valid row without a job to replay; reasons are counted by `why`."""

    why: str


WorkloadRow = SourceJob | RowWithoutJob | BadRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """The choices of a user about an import; a choice that a format does not know is refused before it reads."""

    virtual_cluster: str | None = None
    cpu_jobs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFile:
    """A file to import."""

    path: Path
    stream: TextIO
    options: ImportOptions


Cells = Mapping[str, str]


def csv_rows(
    source: WorkloadFile, columns: Sequence[str], job: Callable[[int, Cells], SourceJob | RowWithoutJob]
) -> Iterator[WorkloadRow]:
    """Convert a CSV file with a header to rows; `job` receives a line number and the cells by column."""
    first = next((line for line in source.stream if line.strip()), "")
    check_text(source.path, first)
    rows = csv.reader(chain([first], source.stream), strict=True)
    try:
        header = [cell.strip() for cell in next(rows)]
        missing = [name for name in columns if name not in header]
        if missing:
            raise TraceError(
                f"{source.path}: column {missing[0]} is missing: this format has the columns {','.join(columns)}"
            )
        for cells in rows:
            if len(cells) == len(header):
                yield guarded(job, rows.line_num, dict(zip(header, cells, strict=True)))
            elif any(cells):
                yield BadRow(line=rows.line_num, why=f"{len(cells)} cells where the header has {len(header)}")
    except csv.Error as err:
        raise TraceError(f"{source.path}: line {rows.line_num}: not CSV ({err}): take the file again") from err


def guarded(job: Callable[[int, Cells], SourceJob | RowWithoutJob], line: int, cells: Cells) -> WorkloadRow:
    """Convert the cells of a line to a job, or to a bad row if one of them is invalid."""
    try:
        return job(line, cells)
    except (ValueError, DecodeError) as err:
        return BadRow(line=line, why=reason(err))


def reason(err: Exception) -> str:
    """Return what an error says is wrong, without advice that does not fit a file."""
    return str(err).partition(_LIVE_ADVICE)[0]


def check_text(path: Path, first: str) -> None:
    """Raise `TraceError` for a file that is empty or no text, by its first line."""
    if not first:
        raise TraceError(f"{path}: is empty: check the path")
    if "\0" in first or any("\udc80" <= char <= "\udcff" for char in first):
        raise TraceError(f"{path}: holds binary data: give the text, plain or gzip")


def number(cells: Cells, column: str) -> float:
    """Read a finite number, or raise `ValueError` that names the column."""
    text = cells[column].strip()
    if text.isascii() and "_" not in text:
        with suppress(ValueError):
            value = float(text)
            if math.isfinite(value):
                return value
    raise ValueError(f"column {column}: {_shown(text)} is not a number")


def whole(cells: Cells, column: str) -> int:
    """Read a whole number, or raise `ValueError` that names the column."""
    value = number(cells, column)
    if not value.is_integer() or abs(value) > _WHOLE_MOST:
        raise ValueError(f"column {column}: {_shown(cells[column])} is not a whole number")
    return int(value)


def per_gpu(total: int | None, gpus: int) -> int:
    """Divide an amount by the number of GPUs, rounded up; 0 if it is unknown."""
    return 0 if total is None else -(-total // gpus)


def fixed_or_open(asked: int | None, ran_on: int | None, gpus: int) -> tuple[int, int]:
    """Return the fewest and most nodes of a job: open (0) above what it asked for only where it ran on more.

    Accounting keeps the fewest nodes a job asks for and how many it got, not the most it would have taken.
    """
    if asked is not None and ran_on is not None and ran_on > asked:
        return min(asked, gpus), 0
    nodes = min(ran_on or asked or 0, gpus)
    return nodes, nodes


def utc_time(cells: Cells, column: str) -> float | None:
    """Read a date and time without a zone as UTC, so that it means the same everywhere; None if it is empty."""
    text = cells[column].strip()
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError as err:
        raise ValueError(f"column {column}: {_shown(text)} is not a date and time") from err


def needed_time(cells: Cells, column: str) -> float:
    """Read a date and time that must be there, as UTC."""
    instant = utc_time(cells, column)
    if instant is None:
        raise ValueError(f"column {column} is empty: it wants a date and time")
    return instant


def _shown(text: str) -> str:
    return repr(text[:_SHOWN]) if text[:_SHOWN].isprintable() else ascii(text[:_SHOWN])
