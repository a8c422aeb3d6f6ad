"""Microsoft's ITP clusters of 2021: one row per GPU job with job_id, submission_time, duration, num_gpu."""

from collections.abc import Iterator
from typing import Final

from advisor.sim.traces.importing.workload_rows import (
    Cells,
    SourceJob,
    WorkloadFile,
    WorkloadRow,
    csv_rows,
    number,
    whole,
)

COLUMNS: Final = ("job_id", "submission_time", "duration", "num_gpu")


def rows(source: WorkloadFile) -> Iterator[WorkloadRow]:
    """Convert the file of one cluster to rows."""
    return csv_rows(source, COLUMNS, _job)


def _job(line: int, cells: Cells) -> SourceJob:
    return SourceJob(
        line=line,
        job_id=cells["job_id"],
        submit_time=number(cells, "submission_time"),
        run_time_s=number(cells, "duration"),
        gpus=whole(cells, "num_gpu"),
    )
