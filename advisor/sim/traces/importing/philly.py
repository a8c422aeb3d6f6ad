"""Microsoft's Philly clusters of 2017: timestamp, duration, num_gpus, gpu_time and the virtual cluster of each job.

A virtual cluster is a tenant with GPUs of its own; replay one at a time, or all as accounts of one cluster.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from advisor.errors import TraceError
from advisor.sim.traces.importing.workload_rows import (
    Cells,
    RowWithoutJob,
    SourceJob,
    WorkloadFile,
    WorkloadRow,
    csv_rows,
    needed_time,
    number,
    whole,
)

COLUMNS: Final = ("timestamp", "duration", "num_gpus", "cluster")

_OTHERS: Final = "of other virtual clusters"


def rows(source: WorkloadFile) -> Iterator[WorkloadRow]:
    """Convert the table to rows, of one virtual cluster if the user chose one."""
    wanted = source.options.virtual_cluster
    jobs_of: Counter[str] = Counter()

    def job(line: int, cells: Cells) -> SourceJob | RowWithoutJob:
        jobs_of[cells["cluster"]] += 1
        if wanted is None:
            return _job(line, cells, account=cells["cluster"])
        return _job(line, cells, account="") if wanted == cells["cluster"] else RowWithoutJob(why=_OTHERS)

    yield from csv_rows(source, COLUMNS, job)
    if wanted is not None and wanted not in jobs_of:
        known = ", ".join(f"{name} ({count} jobs)" for name, count in jobs_of.most_common())
        raise TraceError(f"{source.path}: virtual cluster {wanted!a} is not there: choose one of {known}")


def _job(line: int, cells: Cells, *, account: str) -> SourceJob:
    return SourceJob(
        line=line,
        job_id="",
        submit_time=needed_time(cells, "timestamp"),
        run_time_s=number(cells, "duration"),
        gpus=whole(cells, "num_gpus"),
        account=account,
    )
