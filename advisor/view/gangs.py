"""What gangs ask for, in words."""

from advisor.domain.gang import GangRequest, GpuCount, GpuScope, share_of_gpu
from advisor.domain.units import plural


def gpus_in_words(counts: tuple[GpuCount, ...]) -> str:
    """Return counts with their types: `8 a100 GPUs`, `1 GPU`, `4 a100 GPUs and 2 h100 GPUs`, `2 1g.10gb slices`."""
    return " and ".join(
        plural(gpu.count, f"{gpu.gpu_type} {noun_of(gpu.gpu_type)}" if gpu.gpu_type else "GPU") for gpu in counts
    )


def noun_of(gpu_type: str | None) -> str:
    """Return what one of a type is: a GPU, or a slice of one."""
    return "GPU" if share_of_gpu(gpu_type) >= 1.0 else "slice"


def asked_in_words(gang: GangRequest) -> str:
    """Return what a gang asks for, with where: `8 a100 GPUs on one node`, `2 GPUs for each of 4 tasks`."""
    match gang.scope:
        case None:
            return f"{plural(gang.cpus, 'CPU')}{_at_most(gang.most_nodes)}"
        case GpuScope.JOB:
            return f"{gpus_in_words(gang.per_job)}{_at_most(gang.most_nodes)}"
        case GpuScope.NODE:
            each = "one node" if gang.nodes_min == 1 else f"each of {gang.nodes_min} nodes"
            return f"{gpus_in_words(gang.per_node)} on {each}"
        case GpuScope.TASK:
            each = "one task" if gang.tasks == 1 else f"each of {gang.tasks} tasks"
            return f"{gpus_in_words(gang.per_task)} for {each}{_at_most(gang.most_nodes)}"
        case GpuScope.SOCKET:
            return f"{gpus_in_words(gang.per_socket)} on each socket{_at_most(gang.most_nodes)}"


def beside_gpus_in_words(gang: GangRequest) -> str:
    """Return what each node has to give beside GPUs, CPUs and memory: `, with VramPerGpu:40G`; "" for nothing."""
    parts = [f"with {gres}" for gres in gang.gres]
    if gang.tmp_disk_mib:
        parts.append(f"with {gang.tmp_disk_mib} MiB of local disk (--tmp)")
    if gang.exclusive:
        parts.append("on nodes without other jobs")
    if gang.only_beside:
        parts.append("on nodes without jobs of other users (--exclusive=user)")
    return "".join(f", {part}" for part in parts)


def _at_most(nodes: int | None) -> str:
    if nodes is None:
        return ""
    return " on one node" if nodes == 1 else f" on at most {nodes} nodes"
