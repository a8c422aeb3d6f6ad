"""Workloads that others have published: the columns of each, and how a row becomes a job."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from advisor.backends.tres import tres
from advisor.errors import TraceError
from advisor.sim.traces.importing.workload_rows import (
    Cells,
    RowWithoutJob,
    SourceJob,
    WorkloadFile,
    WorkloadRow,
    check_text,
    csv_rows,
    fixed_or_open,
    guarded,
    needed_time,
    number,
    per_gpu,
    utc_time,
    whole,
)
from advisor.sim.traces.trace_table import BadRow

ITP_COLUMNS: Final = ("job_id", "submission_time", "duration", "num_gpu")
PHILLY_COLUMNS: Final = ("timestamp", "duration", "num_gpus", "cluster")
DRAC_COLUMNS: Final = (
    "job_id", "submit_time", "eligible_time", "start_time", "elapsed_s", "time_limit_s", "account_id", "req_cpus",
    "req_mem_mb", "req_gpus", "alloc_nodes", "req_tres",
)  # fmt: skip
POLLUX_COLUMNS: Final = ("name", "time", "application", "num_replicas", "batch_size")
MURI_COLUMNS: Final = ("job_id", "num_gpu", "submit_time", "model_name", "duration")
SWF_COLUMNS: Final = (
    "job", "submit_time", "wait_s", "run_time_s", "allocated", "cpu_time_s", "memory_kib_used", "requested",
    "time_limit_s", "memory_kib", "status", "user", "group", "executable", "queue", "partition", "preceding_job",
    "think_time_s",
)  # fmt: skip

# Application, GPUs, global batch size: seconds. Tiresias at load 1.0, 8 workloads of 160 jobs on 16 nodes of 4 T4.
# Each is the shortest completion that Pollux's authors published for such a job, which holds restarts and some waiting
# (docs/traces.md).
RUN_TIMES_S: Final[Mapping[tuple[str, int, int], float]] = {
    ("bert", 6, 384): 2921.0,
    ("bert", 8, 384): 2489.0,
    ("bert", 12, 384): 1631.0,
    ("bert", 16, 384): 1361.0,
    ("cifar10", 6, 2048): 941.0,
    ("cifar10", 8, 2048): 838.0,
    ("cifar10", 12, 4096): 654.0,
    ("cifar10", 16, 4096): 515.0,
    ("deepspeech2", 6, 320): 4174.0,
    ("deepspeech2", 8, 320): 3125.0,
    ("deepspeech2", 12, 640): 2524.0,
    ("imagenet", 24, 3200): 36734.0,
    ("imagenet", 32, 6400): 42001.0,
    ("imagenet", 48, 6400): 49585.0,
    ("ncf", 1, 32768): 77.0,
    ("yolov3", 4, 64): 14135.0,
}

_MS_PER_S: Final = 1000
# Status of a record that is one of several for the same job; the record of the whole job stands on its own.
_PARTIAL: Final = (2, 3, 4)


def itp(source: WorkloadFile) -> Iterator[WorkloadRow]:
    """Convert the file of one of Microsoft's ITP clusters of 2021: one row per GPU job."""
    return csv_rows(source, ITP_COLUMNS, _itp_job)


def _itp_job(line: int, cells: Cells) -> SourceJob:
    return SourceJob(
        line=line,
        job_id=cells["job_id"],
        submit_time=number(cells, "submission_time"),
        run_time_s=number(cells, "duration"),
        gpus=whole(cells, "num_gpu"),
    )


def philly(source: WorkloadFile) -> Iterator[WorkloadRow]:
    """Convert the table of Microsoft's Philly clusters of 2017, one virtual cluster of it if the user chose one.

    A virtual cluster is a tenant with GPUs of its own; replay one at a time, or all as accounts of one cluster.
    """
    wanted = source.options.virtual_cluster
    jobs_of: Counter[str] = Counter()

    def job(line: int, cells: Cells) -> SourceJob | RowWithoutJob:
        jobs_of[cells["cluster"]] += 1
        if wanted is None:
            return _philly_job(line, cells, account=cells["cluster"])
        if wanted == cells["cluster"]:
            return _philly_job(line, cells, account="")
        return RowWithoutJob(why="of other virtual clusters")

    yield from csv_rows(source, PHILLY_COLUMNS, job)
    if wanted is not None and wanted not in jobs_of:
        known = ", ".join(f"{name} ({count} jobs)" for name, count in jobs_of.most_common())
        raise TraceError(f"{source.path}: virtual cluster {wanted!a} is not there: choose one of {known}")


def _philly_job(line: int, cells: Cells, *, account: str) -> SourceJob:
    return SourceJob(
        line=line,
        job_id="",
        submit_time=needed_time(cells, "timestamp"),
        run_time_s=number(cells, "duration"),
        gpus=whole(cells, "num_gpus"),
        account=account,
    )


def drac(source: WorkloadFile) -> Iterator[WorkloadRow]:
    """Convert jobs of the Digital Research Alliance of Canada's Slurm clusters; jobs without GPUs are left out.

    They were published for the prediction of waiting times: times are UTC, and rows are jobs that were pending at a
    daily noon, so short waits are under-represented.
    """
    return csv_rows(source, DRAC_COLUMNS, _drac_job)


def _drac_job(line: int, cells: Cells) -> SourceJob | RowWithoutJob:
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


def pollux(source: WorkloadFile) -> Iterator[WorkloadRow]:
    """Convert a workload of Pollux; how long a job runs is not in it, and comes from `RUN_TIMES_S`."""
    return csv_rows(source, POLLUX_COLUMNS, _pollux_job)


def _pollux_job(line: int, cells: Cells) -> SourceJob:
    application, gpus = cells["application"].strip(), whole(cells, "num_replicas")
    batch_size = whole(cells, "batch_size")
    run_time_s = RUN_TIMES_S.get((application, gpus, batch_size))
    if run_time_s is None:
        raise ValueError(
            f"no run time was published for {application[:40]!a} on {gpus} GPUs with batch size {batch_size}"
        )
    return SourceJob(
        line=line,
        job_id=cells["name"],
        submit_time=number(cells, "time"),
        run_time_s=run_time_s,
        gpus=gpus,
        model=application,
    )


def muri(source: WorkloadFile) -> Iterator[WorkloadRow]:
    """Convert a trace of Muri: Philly jobs with models assigned by the authors, times in milliseconds."""
    return csv_rows(source, MURI_COLUMNS, _muri_job)


def _muri_job(line: int, cells: Cells) -> SourceJob:
    return SourceJob(
        line=line,
        job_id=cells["job_id"],
        submit_time=number(cells, "submit_time") / _MS_PER_S,
        run_time_s=number(cells, "duration") / _MS_PER_S,
        gpus=whole(cells, "num_gpu"),
        model=cells["model_name"].strip(),
    )


def swf(source: WorkloadFile) -> Iterator[WorkloadRow]:
    """Convert a workload in the standard workload format, whose processors are read as GPUs.

    It has 18 columns apart by blanks, -1 for unknown, and comments behind a semicolon; a line has all columns or is
    bad. docs/traces.md names the columns.
    """
    is_empty = True
    for line, text in enumerate(source.stream, start=1):
        if line == 1:
            check_text(source.path, text)
        cells = text.partition(";")[0].split()
        is_empty = is_empty and not cells
        if len(cells) == len(SWF_COLUMNS):
            yield guarded(_swf_job, line, dict(zip(SWF_COLUMNS, cells, strict=True)))
        elif cells:
            yield BadRow(line=line, why=f"{len(cells)} columns, where the format has {len(SWF_COLUMNS)}")
    if is_empty:
        check_text(source.path, "")


def _swf_job(line: int, cells: Cells) -> SourceJob | RowWithoutJob:
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
        user=_swf_name("user", cells["user"]),
        account=_swf_name("group", cells["group"]),
        recorded_start_time=submit_time + wait_s if wait_s >= 0 else math.nan,
    )


def _swf_name(kind: str, code: str) -> str:
    return "" if code == "-1" else f"{kind}{code}"
