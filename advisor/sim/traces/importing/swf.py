"""The standard workload format: 18 columns apart by blanks, -1 for unknown, comments behind a semicolon.

Its processors are read as GPUs. docs/traces.md names the columns.
"""

import math
from collections.abc import Iterator
from typing import Final

from advisor.sim.traces.bad_rows import BadRow
from advisor.sim.traces.importing.workload_rows import (
    Cells,
    RowWithoutJob,
    SourceJob,
    WorkloadFile,
    WorkloadRow,
    check_text,
    guarded,
    number,
    whole,
)

COLUMNS: Final = (
    "job", "submit_time", "wait_s", "run_time_s", "allocated", "cpu_time_s", "memory_kib_used", "requested",
    "time_limit_s", "memory_kib", "status", "user", "group", "executable", "queue", "partition", "preceding_job",
    "think_time_s",
)  # fmt: skip

# Status of a record that is one of several for the same job; the record of the whole job stands on its own.
_PARTIAL: Final = (2, 3, 4)


def rows(source: WorkloadFile) -> Iterator[WorkloadRow]:
    """Convert a workload to rows; a line has all 18 columns or is bad."""
    is_empty = True
    for line, text in enumerate(source.stream, start=1):
        if line == 1:
            check_text(source.path, text)
        cells = text.partition(";")[0].split()
        is_empty = is_empty and not cells
        if len(cells) == len(COLUMNS):
            yield guarded(_job, line, dict(zip(COLUMNS, cells, strict=True)))
        elif cells:
            yield BadRow(line=line, why=f"{len(cells)} columns, where the format has {len(COLUMNS)}")
    if is_empty:
        check_text(source.path, "")


def _job(line: int, cells: Cells) -> SourceJob | RowWithoutJob:
    if whole(cells, "status") in _PARTIAL:
        return RowWithoutJob(why="parts of a job")
    run_time_s, submit_time, wait_s = number(cells, "run_time_s"), number(cells, "submit_time"), number(cells, "wait_s")
    if run_time_s in (-1, 0):
        return RowWithoutJob(why="never ran")
    gpus = whole(cells, "requested")
    if gpus <= 0:
        gpus = whole(cells, "allocated")
    limit_s, memory_kib = number(cells, "time_limit_s"), number(cells, "memory_kib")
    return SourceJob(
        line=line,
        job_id=cells["job"],
        submit_time=submit_time,
        run_time_s=run_time_s,
        gpus=gpus,
        # Per processor already.
        memory_mib_per_gpu=math.ceil(memory_kib / 1024) if memory_kib > 0 else 0,
        time_limit_s=limit_s if limit_s > 0 else math.inf,
        user=_name("user", cells["user"]),
        account=_name("group", cells["group"]),
        recorded_start_time=submit_time + wait_s if wait_s >= 0 else math.nan,
    )


def _name(kind: str, code: str) -> str:
    return "" if code == "-1" else f"{kind}{code}"
