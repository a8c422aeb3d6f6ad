"""Muri's traces: Philly jobs with models assigned by the authors; times in milliseconds."""

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

COLUMNS: Final = ("job_id", "num_gpu", "submit_time", "model_name", "duration")

_MS_PER_S: Final = 1000


def rows(source: WorkloadFile) -> Iterator[WorkloadRow]:
    """Convert a trace to rows."""
    return csv_rows(source, COLUMNS, _job)


def _job(line: int, cells: Cells) -> SourceJob:
    return SourceJob(
        line=line,
        job_id=cells["job_id"],
        submit_time=number(cells, "submit_time") / _MS_PER_S,
        run_time_s=number(cells, "duration") / _MS_PER_S,
        gpus=whole(cells, "num_gpu"),
        model=cells["model_name"].strip(),
    )
