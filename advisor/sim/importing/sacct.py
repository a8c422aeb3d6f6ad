"""Slurm's accounting as `sacct -P` prints it: one line per job, columns in any order, apart by tabs or else by `|`.

An answer of `sacct --json` is recognised by its first character and read by `sacct_json`.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TextIO

from advisor.backends.spelling import count, duration_s, instant, is_unset, optional_text
from advisor.backends.tres import tres
from advisor.errors import DecodeError, TraceError
from advisor.sim.bad_rows import BadRow
from advisor.sim.importing.accounted import Accounted, jobs_of, needed
from advisor.sim.importing.sacct_json import accounted_jobs
from advisor.sim.importing.workload_rows import Cells, RowWithoutJob, WorkloadFile, WorkloadRow, check_text, reason

if TYPE_CHECKING:
    from advisor.backends.process import Commands

# The comment comes last because it can hold the separator. So can constraints where the separator is not a tab.
FIELDS: Final = (
    "JobID,JobIDRaw,User,Account,QOS,Partition,Submit,Eligible,Start,ElapsedRaw,"
    "TimelimitRaw,State,ReqTRES,AllocTRES,NNodes,Reservation,Constraints,JobName,Comment"
)
COMMAND: Final = f"SLURM_TIME_FORMAT=%s sacct -a -X -P --delimiter=$'\\t' -S START -o {FIELDS}"

SEPARATOR: Final = "|"
_TAB: Final = "\t"
# Columns besides the comment that can hold `|`.
_MIXED: Final = frozenset(("Constraints", "JobName"))
_LONGEST_HEADER: Final = 10_000
# Columns that sacct of most releases does not print; they are read where a file has them.
_OPTIONAL: Final = ("Dependency",)
# Longer numbers are not job ids.
_ID_DIGITS: Final = 10
# Of each group the first column that is there is read.
_IDS: Final = ("JobIDRaw", "JobID")
ELAPSED: Final = ("ElapsedRaw", "Elapsed")
LIMITS: Final = ("TimelimitRaw", "Timelimit")
_NEEDED: Final = (_IDS, ("Submit",), ("Start",), ELAPSED, ("State",), ("ReqTRES", "AllocTRES"))


def asked(commands: "Commands", *, since: str) -> TextIO:
    """Run sacct for the jobs of all users since a time in its spelling; raises `SlurmError`."""
    return asked_for(FIELDS, commands, f"--delimiter={_TAB}", since=since)


def asked_for(fields: str, commands: "Commands", *options: str, since: str) -> TextIO:
    """Run sacct for some fields of the jobs of all users since a time in its spelling; raises `SlurmError`."""
    answer = commands.ask("sacct", "-a", "-X", "-P", *options, "-S", since, "-o", fields)
    return io.StringIO(answer.output.decode(errors="surrogateescape"))


def rows(source: WorkloadFile) -> Iterator[WorkloadRow]:
    """Convert the output of sacct, text or JSON, to rows."""
    lines = ((line, text) for line, text in enumerate(source.stream, start=1) if text.strip())
    _, first = next(lines, (0, ""))
    check_text(source.path, first)
    if first.lstrip().startswith("{"):
        return jobs_of(accounted_jobs(source, first), cpu_jobs=source.options.cpu_jobs)
    separator = _TAB if _TAB in first[:_LONGEST_HEADER] else SEPARATOR
    header = header_of(first, FIELDS, _NEEDED, source.path, COMMAND, separator)
    records = (_record(header, line, text, separator) for line, text in lines)
    return jobs_of(records, cpu_jobs=source.options.cpu_jobs)


def header_of(
    line: str,
    fields: str,
    needed_groups: Iterable[Sequence[str]],
    origin: object,
    command: str,
    separator: str = SEPARATOR,
) -> list[str]:
    """Read the names of the columns, whose case does not count; raises `TraceError` unless each group has one."""
    known = {name.lower(): name for name in (*fields.split(","), *ELAPSED, *LIMITS, *_OPTIONAL, "JobID")}
    header = [known.get(cell.strip().lower(), cell.strip()) for cell in line[:_LONGEST_HEADER].split(separator)]
    for group in needed_groups:
        if not any(name in header for name in group):
            raise TraceError(f"{origin}: column {' or '.join(group)} is missing: write the file with {command}")
    return header


def _record(header: list[str], line: int, text: str, separator: str) -> Accounted | RowWithoutJob | BadRow:
    values = text.rstrip("\r\n").split(separator)
    is_comment = header[-1] == "Comment" and (separator == _TAB or not _MIXED & set(header))
    if len(values) > len(header) and is_comment:
        values[len(header) - 1 :] = [separator.join(values[len(header) - 1 :])]
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
        elapsed_s=elapsed_s(cells),
        limit_s=limit_s(cells),
        asked=tres(cells.get("ReqTRES", ""), field="ReqTRES"),
        held=tres(cells.get("AllocTRES", ""), field="AllocTRES"),
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


def _array_id(job_id: str) -> int:
    """Return the id of the array of a task, which is spelled as array_task; 0 for a job of its own."""
    array, underscore, _ = job_id.strip().partition("_")
    is_task = bool(underscore) and array.isascii() and array.isdecimal() and len(array) <= _ID_DIGITS
    return int(array) if is_task else 0


def elapsed_s(cells: Cells) -> float:
    """Return the run time of a job."""
    if "ElapsedRaw" in cells:
        return float(count(cells["ElapsedRaw"], field="ElapsedRaw"))
    return duration_s(cells["Elapsed"], field="Elapsed") or 0.0


def limit_s(cells: Cells) -> float | None:
    """Return the time limit of a job, None where it has none."""
    return duration_s(_first(cells, LIMITS), field="Timelimit")


def _first(cells: Cells, names: Iterable[str]) -> str:
    return next((cells[name] for name in names if name in cells), "")
