"""Slurm's accounting as sacct prints it: JSON, or text of one line per job, columns in any order.

sacct escapes nothing in text, and a name can hold newlines and separators: a user can write rows of others. So live
accounting is asked for what Slurm fills in, and for texts of users by job id. Files are best JSON; of a text file with
texts of users, rows are in doubt where a text broke a row or the order of rows.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TextIO

from advisor.backends.process import text_of
from advisor.backends.spelling import CACHED_TEXTS, count, duration_s, instant, is_unset, optional_text
from advisor.backends.submit_lines import accounted_texts
from advisor.backends.tres import Tres, tres
from advisor.domain.dataclass import dataclass
from advisor.errors import DecodeError, TraceError
from advisor.sim.traces.importing.accounted import Accounted, Record, jobs_of, needed
from advisor.sim.traces.importing.sacct_json import accounted_jobs
from advisor.sim.traces.importing.workload_rows import (
    Cells,
    RowWithoutJob,
    WorkloadFile,
    WorkloadRow,
    check_text,
    reason,
)
from advisor.sim.traces.trace_table import BadRow

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.backends.process import Commands

COMMAND: Final = "sacct -a -X --json -S START"
IN_DOUBT: Final = f"in doubt, as users can write such rows (write the file with {COMMAND})"

# What Slurm fills in. The account is not among it: without AccountingStorageEnforce a job can name any.
FILLED_IN: Final = (
    "JobIDRaw", "JobID", "User", "QOS", "Partition", "Submit", "Eligible", "Start", "ElapsedRaw", "TimelimitRaw",
    "State", "ReqTRES", "AllocTRES", "NNodes", "Reservation",
)  # fmt: skip
WRITTEN: Final = ("Account", "Constraints", "JobName", "Comment")
# Columns that files have besides, and that users do not write either.
_ALSO_FILLED_IN: Final = (
    "Elapsed", "Timelimit", "End", "Cluster", "UID", "GID", "Group", "AssocID", "QOSRaw", "DBIndex", "AllocNodes",
    "AllocCPUS", "NCPUS", "ReqCPUS", "ReqMem", "ReqNodes", "NodeList", "ExitCode", "DerivedExitCode", "Priority",
    "Reserved", "Planned", "Suspended", "ReservationId", "Restarts", "Flags", "CPUTime", "CPUTimeRAW", "TotalCPU",
    "Dependency",
)  # fmt: skip
_SAFE: Final = frozenset(name.lower() for name in (*FILLED_IN, *_ALSO_FILLED_IN))

_BAR: Final = "|"
_TAB: Final = "\t"
# Columns besides the comment that can hold `|`.
_MIXED: Final = frozenset(("Constraints", "JobName"))
_LONGEST_HEADER: Final = 10_000
# Of the rows that are joined.
_LONGEST_ROW: Final = 1 << 16
# Longer numbers are not job ids.
_ID_DIGITS: Final = 10
# Of each group the first column that is there is read.
_IDS: Final = ("JobIDRaw", "JobID")
_ELAPSED: Final = ("ElapsedRaw", "Elapsed")
LIMITS: Final = ("TimelimitRaw", "Timelimit")
_NEEDED: Final = (("Submit",), ("Start",), _ELAPSED, ("State",), ("ReqTRES", "AllocTRES"))
# A job, a component of a heterogeneous one, or a task of an array, of which `[` begins those that wait; or a step.
_JOB_ID: Final = re.compile(r"(\d{1,10})(?:\+(\d{1,5})|_(?:(\d{1,10})|\[[^|]*))?(?:\.\w+)?", re.ASCII)


@dataclass(slots=True)
class _Line:
    """A row of text and the number of its first line; `is_short` if it has fewer columns than the header."""

    number: int
    text: str
    is_short: bool
    in_doubt: bool = False


def asked(commands: "Commands", *, since: str) -> Iterator[Record]:
    """Run sacct for the jobs of all users since a time in its spelling; raises `SlurmError`."""
    # In this order each job that has texts has a row, which it also has if its texts are in doubt.
    texts = accounted_texts(commands, WRITTEN, "-S", since)
    answer = commands.ask("sacct", "-a", "-n", "-X", "-P", "-S", since, "-o", ",".join(FILLED_IN))
    none = [""] * len(WRITTEN)
    for line, row in enumerate(text_of(answer.output).split("\n"), start=1):
        if row:
            yield _record([*FILLED_IN, *WRITTEN], line, [*row.split(_BAR), *texts.get(row.partition(_BAR)[0], none)])


def asked_rows(commands: "Commands", *, since: str) -> Callable[[WorkloadFile], Iterator[WorkloadRow]]:
    """Return a reader of the accounting of the site in place of a file."""
    return lambda source: jobs_of(asked(commands, since=since), cpu_jobs=source.options.cpu_jobs)


def rows(source: WorkloadFile) -> Iterator[WorkloadRow]:
    """Convert the output of sacct, text or JSON, to rows."""
    return jobs_of(records(source.path, source.stream), cpu_jobs=source.options.cpu_jobs)


def records(
    path: "Path", stream: TextIO, *, more: Iterable[Sequence[str]] = (), allow_written: bool = True
) -> Iterator[Record]:
    """Read the output of sacct, text or JSON; `more` are groups of columns that text also needs one of.

    Raises `TraceError` for a file that is no such output, or text with columns that users write unless `allow_written`.
    """
    lines = ((number, text) for number, text in enumerate(stream, start=1) if text.strip())
    _, first = next(lines, (0, ""))
    check_text(path, first)
    if first.lstrip().startswith("{"):
        return accounted_jobs(path, stream, first)
    separator = _TAB if _TAB in first[:_LONGEST_HEADER] else _BAR
    header = _header(first, separator)
    if len(header) == 1 and {name.strip().lower() for name in first.split(",")} & _SAFE:
        raise TraceError(f"{path}: commas separate its columns, not tabs or bars: write the file with {COMMAND}")
    written = next((name for name in header if name and name.lower() not in _SAFE), None)
    # Whether rows can be made up shows in the order of JobID.
    _need(header, (*_NEEDED, *more), path)
    if written is not None and not allow_written:
        raise TraceError(f"{path}: users write column {written}, and with it false rows: write the file with {COMMAND}")
    _need(header, [_IDS if written is None else ("JobID",)], path)
    if written is None:
        return (_record(header, number, _cells(text, separator)) for number, text in lines)
    return _judged(path, header, lines, separator)


def _header(line: str, separator: str) -> list[str]:
    """Read the names of the columns, whose case does not count."""
    known = {name.lower(): name for name in (*FILLED_IN, *WRITTEN, *_ALSO_FILLED_IN)}
    return [known.get(cell.strip().lower(), cell.strip()) for cell in line[:_LONGEST_HEADER].split(separator)]


def _need(header: Sequence[str], groups: Iterable[Sequence[str]], path: "Path") -> None:
    for group in groups:
        if not any(name in header for name in group):
            raise TraceError(f"{path}: column {' or '.join(group)} is missing: write the file with {COMMAND}")


def _cells(text: str, separator: str) -> list[str]:
    return text.rstrip("\r\n").split(separator)


def _judged(path: "Path", header: list[str], lines: Iterable[tuple[int, str]], separator: str) -> Iterator[Record]:
    """Read rows that hold texts of users; those that do not stand where sacct prints them are in doubt."""
    width, place = len(header), header.index("JobID")
    found = _mended(path, lines, width, separator)
    ids = [(*line.text.split(separator, place + 1), "")[place].strip() for line in found]
    _doubt_disorder(found, ids)
    times = Counter(ids)
    is_comment = header[-1] == "Comment" and (separator == _TAB or not _MIXED & set(header))
    for line, job_id in zip(found, ids, strict=True):
        values = _cells(line.text, separator)
        if len(values) > width and is_comment:
            values[width - 1 :] = [separator.join(values[width - 1 :])]
        if line.in_doubt:
            yield RowWithoutJob(why=IN_DOUBT)
        elif times[job_id] > 1:
            yield BadRow(line=line.number, why=f"job {job_id[:40]!a} stands in several lines")
        else:
            yield _record(header, line.number, values)


def _mended(path: "Path", lines: Iterable[tuple[int, str]], width: int, separator: str) -> list[_Line]:
    """Join rows that newlines broke; raises `TraceError` where others than whole rows come of it.

    What is left over shows that a text holds more than a newline: any row near it can be made up.
    """
    found: list[_Line] = []
    for number, text in lines:
        columns = text.count(separator) + 1
        if found and found[-1].is_short:
            found[-1].text += text
            joined = found[-1].text.count(separator) + 1
            found[-1].is_short = joined < width
            if columns >= width or joined > width or len(found[-1].text) > _LONGEST_ROW:
                raise _broken(path, found[-1])
        else:
            found.append(_Line(number, text, is_short=columns < width))
    if found and found[-1].is_short:
        raise _broken(path, found[-1])
    return found


def _broken(path: "Path", line: _Line) -> TraceError:
    return TraceError(
        f"{path}: line {line.number}: a newline in a text that users write broke the row, and rows near it can be made "
        f"up: write the file with {COMMAND}"
    )


def _doubt_disorder(lines: list[_Line], ids: list[str]) -> None:
    """Put rows in doubt that have no job id, or do not stand in the order of sacct: jobs by id, then tasks by array."""
    for line, job_id in zip(lines, ids, strict=True):
        line.in_doubt = _JOB_ID.fullmatch(job_id) is None
    known = [(line, _place(job_id)) for line, job_id in zip(lines, ids, strict=True) if not line.in_doubt]
    highest = lowest = None
    for line, place in known:
        line.in_doubt = highest is not None and place < highest
        highest = place if highest is None else max(highest, place)
    for line, place in reversed(known):
        line.in_doubt = line.in_doubt or (lowest is not None and place > lowest)
        lowest = place if lowest is None else min(lowest, place)


def _place(job_id: str) -> tuple[float, float]:
    """Return the place of a job, or of one of its steps, in what sacct prints."""
    match = _JOB_ID.fullmatch(job_id)
    number, offset, task = (None, None, None) if match is None else match.groups()
    if "_" in job_id:
        return float(number or 0), math.inf if task is None else float(task)
    return 0.0, float(number or 0) + float(offset or 0)


def _record(header: list[str], line: int, values: list[str]) -> Record:
    if len(values) != len(header):
        return BadRow(line=line, why=f"{len(values)} columns where the header has {len(header)}")
    cells = dict(zip(header, values, strict=True))
    if "." in _first(cells, _IDS):
        return RowWithoutJob(why="job steps")
    try:
        return _accounted(line, cells)
    except DecodeError as err:
        return BadRow(line=line, why=reason(err))


def _accounted(line: int, cells: Cells) -> Accounted:
    # A component of a heterogeneous job is spelled as leader+offset.
    leader, plus, _ = cells.get("JobID", "").partition("+")
    nodes = cells.get("NNodes", "")
    return Accounted(
        line=line,
        job_id=_first(cells, _IDS).strip(),
        het_job_id=leader if plus else "",
        states=frozenset(cells["State"].upper().split()[:1]),
        submit_time=needed(instant(cells["Submit"], field="Submit"), "Submit"),
        eligible_time=instant(cells.get("Eligible", ""), field="Eligible"),
        start_time=instant(cells["Start"], field="Start"),
        elapsed_s=_elapsed_s(cells),
        limit_s=duration_s(_first(cells, LIMITS), field="Timelimit"),
        asked=_tres(cells.get("ReqTRES", ""), "ReqTRES"),
        held=_tres(cells.get("AllocTRES", ""), "AllocTRES"),
        nodes=None if is_unset(nodes) else count(nodes, field="NNodes"),
        user=optional_text(cells.get("User", "")),
        account=optional_text(cells.get("Account", "")),
        qos=optional_text(cells.get("QOS", "")),
        comment=cells.get("Comment", ""),
        partition=optional_text(cells.get("Partition", "")),
        array_id=_array_id(cells.get("JobID", "")),
        dependency=optional_text(cells.get("Dependency", "")),
        name=cells.get("JobName", ""),
        features=optional_text(cells.get("Constraints", "")),
        reservation=optional_text(cells.get("Reservation", "")),
    )


@lru_cache(CACHED_TEXTS)
def _tres(text: str, field: str) -> Tres:
    return tres(text, field=field)


def _array_id(job_id: str) -> int:
    """Return the id of the array of a task, which is spelled as array_task; 0 for a job of its own."""
    array, underscore, _ = job_id.strip().partition("_")
    is_task = bool(underscore) and array.isascii() and array.isdecimal() and len(array) <= _ID_DIGITS
    return int(array) if is_task else 0


def _elapsed_s(cells: Cells) -> float:
    """Return the run time of a job."""
    if "ElapsedRaw" in cells:
        return float(count(cells["ElapsedRaw"], field="ElapsedRaw"))
    return duration_s(cells["Elapsed"], field="Elapsed") or 0.0


def _first(cells: Cells, names: Iterable[str]) -> str:
    return next((cells[name] for name in names if name in cells), "")
