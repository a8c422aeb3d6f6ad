"""Counts the GPUs and tasks that jobs ask for."""

from collections.abc import Mapping

from advisor.domain.gang import GangRequest, GpuScope
from advisor.domain.job import Job, waiting_tasks


def tasks_of(job: Job) -> int:
    """Count the jobs a record stands for: the waiting tasks of an array that has not been split, else one."""
    if job.array is None or job.array.task_id is not None:
        return 1
    return waiting_tasks(job.array.waiting)


def gpus_by_type(gang: GangRequest) -> Mapping[str | None, int] | None:
    """Return the GPUs a gang needs at least, by type (None for any); None where the request leaves it open."""
    match gang.scope:
        case None:
            return {}
        case GpuScope.JOB:
            return {gpu.gpu_type: gpu.count for gpu in gang.per_job}
        case GpuScope.NODE:
            return {gpu.gpu_type: gpu.count * gang.nodes_min for gpu in gang.per_node}
        case GpuScope.TASK:
            return {gpu.gpu_type: gpu.count * gang.tasks for gpu in gang.per_task}
        case GpuScope.SOCKET:
            return None
