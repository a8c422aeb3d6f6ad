"""The scontrol command lines that apply a change and take it back; one field each, as argv, never a shell.

Each pair was run on the live releases and read back: what a revert leaves behind is what stood before. A requeue has
nothing that takes it back.
"""

import math

from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.plan import (
    Action,
    Requeue,
    SetGpus,
    SetNice,
    SetNodeRange,
    SetSwitches,
    SetTimeMin,
    can_be_undone,
    undone,
)
from advisor.domain.units import MINUTE_S

_GPU_FIELD = {
    GpuScope.JOB: "TresPerJob",
    GpuScope.NODE: "TresPerNode",
    GpuScope.SOCKET: "TresPerSocket",
    GpuScope.TASK: "TresPerTask",
}


def apply_argv(action: Action, cluster: str | None = None) -> list[str]:
    """Return the command that brings a job to the action's after value."""
    scontrol = ["scontrol", *(["-M", cluster] if cluster else [])]
    match action:
        case Requeue():
            # Only one that has not ended: Slurm would otherwise run a job again that ended a moment ago.
            return [*scontrol, "requeue", "incomplete", str(action.job_id)]
        case SetNice(after=nice):
            field = f"Nice={nice}"
        case SetSwitches(after=switches):
            field = f"Switches={_switches(switches)}"
        case SetNodeRange(after=nodes):
            # Both ends: a single number is refused on some jobs, and leaves their CPU count doubled.
            field = f"NumNodes={nodes.low}-{nodes.high}"
        case SetGpus(scope=scope, after=counts):
            field = f"{_GPU_FIELD[scope]}={','.join(_gres(gpu) for gpu in counts)}"
        case SetTimeMin(after=soft_s):
            # In minutes; 0 is none. Rounded up, since a job planned too short delays others.
            field = f"TimeMin={0 if soft_s is None else math.ceil(soft_s / MINUTE_S)}"
    return [*scontrol, "update", f"JobId={action.job_id}", field]


def revert_argv(action: Action, cluster: str | None = None) -> list[str] | None:
    """Return the command that brings a job back to the action's before value, None where nothing can."""
    return apply_argv(undone(action), cluster) if can_be_undone(action) else None


def _switches(switches: SwitchRequest | None) -> str:
    # A plain 0 would leave the waiting time behind; the time counts in minutes.
    return "0@0" if switches is None else f"{switches.count}@{switches.max_wait_s / MINUTE_S:.0f}"


def _gres(gpu: GpuCount) -> str:
    # Only this form takes effect everywhere: 22.05 shows `gres/gpu:2` but still gives the old number, and a bare
    # `gpu:2` takes the GPUs away from a job of 26.05 although it is refused.
    return ":".join(["gres", "gpu", *([gpu.gpu_type] if gpu.gpu_type else []), str(gpu.count)])
