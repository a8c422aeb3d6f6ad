"""What jobs ask for: in numbers by GPU type, and in words."""

from collections.abc import Mapping

from advisor.domain.gang import GangRequest, GpuCount, GpuScope
from advisor.domain.job import Job
from advisor.domain.units import plural
from advisor.features.queue import waiting_tasks


def tasks_of(job: Job) -> int:
    """Count the jobs a record stands for: the waiting tasks of an array that has not been split, else one."""
    if job.array is None or job.array.task_id is not None:
        return 1
    return waiting_tasks(job.array.waiting)


def gpus_by_type(gang: GangRequest) -> Mapping[str | None, int] | None:
    """Return the GPUs a gang needs at least, by type (None for any); None where the request does not tell."""
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


def gpus_in_words(counts: tuple[GpuCount, ...]) -> str:
    """Return counts with their types: `8 a100 GPUs`, `1 GPU`, `4 a100 GPUs and 2 h100 GPUs`."""
    return " and ".join(plural(gpu.count, f"{gpu.gpu_type} GPU" if gpu.gpu_type else "GPU") for gpu in counts)


def asked_in_words(gang: GangRequest) -> str:
    """Return what a gang asks for, with where: `8 a100 GPUs on one node`, `2 GPUs for each of 4 tasks`."""
    match gang.scope:
        case None:
            return f"{plural(gang.cpus, 'CPU')}{_at_most(gang.nodes_max)}"
        case GpuScope.JOB:
            return f"{gpus_in_words(gang.per_job)}{_at_most(gang.nodes_max)}"
        case GpuScope.NODE:
            each = "one node" if gang.nodes_min == 1 else f"each of {gang.nodes_min} nodes"
            return f"{gpus_in_words(gang.per_node)} on {each}"
        case GpuScope.TASK:
            each = "one task" if gang.tasks == 1 else f"each of {gang.tasks} tasks"
            return f"{gpus_in_words(gang.per_task)} for {each}{_at_most(gang.nodes_max)}"
        case GpuScope.SOCKET:
            return f"{gpus_in_words(gang.per_socket)} on each socket{_at_most(gang.nodes_max)}"


def _at_most(nodes: int | None) -> str:
    if nodes is None:
        return ""
    return " on one node" if nodes == 1 else f" on at most {nodes} nodes"
