"""Jobs of the Digital Research Alliance of Canada's Slurm clusters, as published for the prediction of waiting times.

Times are UTC. The published rows are jobs that were pending at a daily noon, so short waits are under-represented.
"""

from collections.abc import Iterator
from typing import Final

from advisor.backends.tres import tres
from advisor.sim.traces.importing.workload_rows import (
    Cells,
    RowWithoutJob,
    SourceJob,
    WorkloadFile,
    WorkloadRow,
    csv_rows,
    fixed_or_open,
    needed_time,
    number,
    per_gpu,
    utc_time,
    whole,
)

COLUMNS: Final = (
    "job_id", "submit_time", "eligible_time", "start_time", "elapsed_s", "time_limit_s", "account_id", "req_cpus",
    "req_mem_mb", "req_gpus", "alloc_nodes", "req_tres",
)  # fmt: skip


def rows(source: WorkloadFile) -> Iterator[WorkloadRow]:
    """Convert a table of jobs to rows; jobs without GPUs are left out."""
    return csv_rows(source, COLUMNS, _job)


def _job(line: int, cells: Cells) -> SourceJob | RowWithoutJob:
    gpus = whole(cells, "req_gpus")
    if gpus == 0:
        return RowWithoutJob(why="without GPUs")
    submit_time = needed_time(cells, "submit_time")
    asked = tres(cells["req_tres"], field="column req_tres")
    nodes_min, nodes_max = fixed_or_open(asked.nodes, whole(cells, "alloc_nodes"), gpus)
    return SourceJob(
        line=line,
        job_id=cells["job_id"],
        submit_time=max(submit_time, utc_time(cells, "eligible_time") or submit_time),
        run_time_s=number(cells, "elapsed_s"),
        gpus=gpus,
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        cpus_per_gpu=per_gpu(whole(cells, "req_cpus"), gpus),
        memory_mib_per_gpu=per_gpu(whole(cells, "req_mem_mb"), gpus),
        time_limit_s=number(cells, "time_limit_s"),
        user=f"user{cells['account_id']}",
        recorded_start_time=needed_time(cells, "start_time"),
    )
