"""A job in Slurm's accounting, and the part of it that can be replayed."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from advisor.backends.hints import hints
from advisor.backends.tres import Tres
from advisor.domain.dataclass import dataclass
from advisor.domain.gang import MOST
from advisor.errors import DecodeError
from advisor.sim.traces.importing.workload_rows import RowWithoutJob, SourceJob, WorkloadRow, fixed_or_open, per_gpu
from advisor.sim.traces.trace_table import BadRow

_RUNNING: Final = frozenset(("RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT"))
# Another record holds how the job went on.
_GONE_ON: Final = frozenset(("REQUEUED", "RESIZING"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounted:
    """The decoded accounting record of one job; None for a missing value.

    `line` is its place in the file. `het_job_id` is empty for an ordinary job, and the same for all components of a
    heterogeneous one. `array_id` is 0 for a job that is no task of an array. `asked` and `held` are what it
    requested and what it was allocated.
    """

    line: int
    job_id: str
    het_job_id: str
    states: frozenset[str]
    submit_time: float
    eligible_time: float | None
    start_time: float | None
    elapsed_s: float
    limit_s: float | None
    asked: Tres
    held: Tres
    nodes: int | None
    user: str
    account: str
    qos: str
    comment: str
    partition: str
    array_id: int
    dependency: str
    name: str = ""
    features: str = ""
    reservation: str = ""


Record = Accounted | RowWithoutJob | BadRow


def needed(submit_time: float | None, field: str) -> float:
    """Return a time of submission, which every job has; raises `DecodeError` where it does not."""
    if submit_time is None:
        raise DecodeError(f"{field} is not set")
    return submit_time


def jobs_of(records: Iterable[Record], *, cpu_jobs: bool = False) -> Iterator[WorkloadRow]:
    """Convert records to rows; consecutive components of a heterogeneous job become one job.

    Jobs without GPUs are left out unless `cpu_jobs`.
    """
    gang: SourceJob | None = None
    gang_id = ""
    for record in records:
        row = _row(record, cpu_jobs=cpu_jobs) if isinstance(record, Accounted) else record
        if not (isinstance(record, Accounted) and record.het_job_id and isinstance(row, SourceJob)):
            yield row
        elif gang is not None and gang_id == record.het_job_id:
            gang = _together(gang, row)
        else:
            if gang is not None:
                yield gang
            gang, gang_id = row, record.het_job_id
    if gang is not None:
        yield gang


def _row(job: Accounted, *, cpu_jobs: bool) -> SourceJob | RowWithoutJob:
    # What it held counts: an exclusive job keeps GPUs from others that it did not ask for.
    used = job.held if job.held.gpus or (cpu_jobs and job.held.cpus) else job.asked
    gpus = sum(gpus.count for gpus in used.gpus or ())
    if not gpus and not cpu_jobs:
        return RowWithoutJob(why="without GPUs")
    if job.states & _GONE_ON:
        return RowWithoutJob(why="requeued or resized")
    if job.states & _RUNNING:
        return RowWithoutJob(why="still running")
    if job.start_time is None or "PENDING" in job.states:
        return RowWithoutJob(why="never started")
    if job.elapsed_s <= 0:
        return RowWithoutJob(why="ended at once")
    return _source_job(job, used, gpus, start_time=job.start_time)


def _source_job(job: Accounted, used: Tres, gpus: int, *, start_time: float) -> SourceJob:
    types = {gpus.gpu_type for gpus in job.asked.gpus or ()}
    ran_on = job.held.nodes or job.nodes
    nodes_min, nodes_max = fixed_or_open(job.asked.nodes, ran_on, gpus or MOST)
    hinted = hints(job.comment)
    low, high = (hinted.gpus.low, hinted.gpus.high) if hinted.gpus is not None else (0, 0)
    is_elastic = low <= gpus <= high
    # Accounting rarely has dependencies, begin times and array limits: a job enters the queue when it was eligible.
    entered_time = min(max(job.submit_time, job.eligible_time or 0.0), start_time)
    return SourceJob(
        line=job.line,
        job_id=job.job_id,
        submit_time=entered_time,
        run_time_s=job.elapsed_s,
        gpus=gpus,
        gpus_min=low if is_elastic else 0,
        gpus_max=high if is_elastic else 0,
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        cpus_per_gpu=per_gpu(used.cpus, gpus) if gpus else 0,
        memory_mib_per_gpu=per_gpu(used.memory_mib, gpus) if gpus else 0,
        cpus=0 if gpus else used.cpus or 0,
        memory_mib=0 if gpus else -(-(used.memory_mib or 0) // max(1, ran_on or 1)),
        name=job.name,
        features=job.features,
        reservation=job.reservation,
        time_limit_s=math.inf if job.limit_s is None else job.limit_s,
        gpu_type=(types.pop() or "") if len(types) == 1 else "",
        model=hinted.model or "",
        user=job.user,
        account=job.account,
        qos=job.qos,
        checkpoint_interval_s=hinted.checkpoint_s or 0.0,
        recorded_start_time=start_time,
        partition=job.partition,
        array_id=job.array_id,
        dependency=job.dependency,
    )


def _together(gang: SourceJob, other: SourceJob) -> SourceJob:
    """Join two components, which start and end together."""
    is_open = 0 in (gang.nodes_max, other.nodes_max)
    return replace(
        gang,
        run_time_s=max(gang.run_time_s, other.run_time_s),
        gpus=gang.gpus + other.gpus,
        gpus_min=0,
        gpus_max=0,
        nodes_min=gang.nodes_min + other.nodes_min,
        nodes_max=0 if is_open else gang.nodes_max + other.nodes_max,
        cpus_per_gpu=max(gang.cpus_per_gpu, other.cpus_per_gpu),
        memory_mib_per_gpu=max(gang.memory_mib_per_gpu, other.memory_mib_per_gpu),
        gpu_type=gang.gpu_type if gang.gpu_type == other.gpu_type else "",
        cpus=gang.cpus + other.cpus,
        memory_mib=max(gang.memory_mib, other.memory_mib),
        features=gang.features if gang.features == other.features else "",
        partition=gang.partition if gang.partition == other.partition else "",
    )
