"""The scontrol command lines that apply a change and take it back; one field each, as argv, never a shell.

Each pair was run on the live releases and read back: what a revert leaves behind is what stood before.
"""

from collections.abc import Iterable

from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.plan import Action, NodeRange, SetGpus, SetNice, SetNodeRange, SetSwitches

MINUTE_S = 60.0

_GPU_FIELD = {
    GpuScope.JOB: "TresPerJob",
    GpuScope.NODE: "TresPerNode",
    GpuScope.SOCKET: "TresPerSocket",
    GpuScope.TASK: "TresPerTask",
}


def apply_argv(action: Action, cluster: str | None = None) -> list[str]:
    """Return the command that brings a job to the action's after value."""
    match action:
        case SetNice(after=after):
            field = _nice(after)
        case SetSwitches(after=after):
            field = _switches(after)
        case SetNodeRange(after=after):
            field = _nodes(after)
        case SetGpus(scope=scope, after=after):
            field = _gpus(scope, after)
    return _update(action.job_id, field, cluster)


def revert_argv(action: Action, cluster: str | None = None) -> list[str]:
    """Return the command that brings a job back to the action's before value."""
    match action:
        case SetNice(before=before):
            field = _nice(before)
        case SetSwitches(before=before):
            field = _switches(before)
        case SetNodeRange(before=before):
            field = _nodes(before)
        case SetGpus(scope=scope, before=before):
            field = _gpus(scope, before)
    return _update(action.job_id, field, cluster)


def _update(job_id: int, field: str, cluster: str | None) -> list[str]:
    return ["scontrol", *(["-M", cluster] if cluster else []), "update", f"JobId={job_id}", field]


def _nice(nice: int) -> str:
    return f"Nice={nice}"


def _switches(switches: SwitchRequest | None) -> str:
    # A plain 0 would leave the waiting time behind; the time counts in minutes.
    return "Switches=0@0" if switches is None else f"Switches={switches.count}@{switches.max_wait_s / MINUTE_S:.0f}"


def _nodes(nodes: NodeRange) -> str:
    # Both ends: a single number is refused on some jobs, and leaves their CPU count doubled.
    return f"NumNodes={nodes.low}-{nodes.high}"


def _gpus(scope: GpuScope, counts: Iterable[GpuCount]) -> str:
    # Only this form takes effect everywhere: 22.05 shows `gres/gpu:2` but still gives the old number, and a bare
    # `gpu:2` takes the GPUs away from a job of 26.05 although it is refused.
    texts = (":".join(["gres", "gpu", *([gpu.gpu_type] if gpu.gpu_type else []), str(gpu.count)]) for gpu in counts)
    return f"{_GPU_FIELD[scope]}={','.join(texts)}"
