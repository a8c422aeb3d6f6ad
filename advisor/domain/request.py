"""Defines requests: what a job asks for when it is given a change, and whether it asks for more since."""

import math
from collections.abc import Callable, Collection
from typing import Final

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import GangRequest
from advisor.domain.job import Job, waiting_tasks
from advisor.domain.units import duration, plural

REQUEUED: Final = "was requeued since it was changed"
_CUT: Final = "..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a job asks for, and when it was submitted, which a requeue sets again.

    `gpus` and `tasks` None are not known, `nodes_most` None leaves the node count open, `memory_mib` None, over all
    nodes, is all that they have, and `time_limit_s` None is no limit. `tasks` are those of an array that wait and can
    run at the same time, 1 for other jobs. `gpu_s` is the GPU-time that a plan counted for it; None where none did.
    Of a job that `is_resized` by us Slurm changes the CPUs and the memory too.
    """

    submit_time: float
    gpus: int | None
    nodes: int
    nodes_most: int | None
    cpus: int
    memory_mib: int | None
    time_limit_s: float | None
    tasks: int | None
    partitions: tuple[str, ...]
    account: str
    gpu_s: float | None = None
    is_resized: bool = False

    def more_in(self, later: "Request") -> str:
        """Return in plain words what a later request has beyond this one; "" if nothing."""
        if later.submit_time > self.submit_time:
            return REQUEUED
        if set(later.partitions) - set(self.partitions):
            return "asks for another partition than when it was changed"
        if later.account != self.account:
            return "has another account than when it was changed"
        for asked, spelled in _AMOUNTS:
            before, after = asked(self), asked(later)
            if before is not None and after is not None and after > before:
                return f"asks for {spelled(after)}, for {spelled(before)} when it was changed"
        return ""


def request_of(job: Job, *, is_resized: bool = False) -> Request:
    """Return what a job asks for; whether we have resized it since its user did."""
    gang = job.gang
    memory_mib = gang.memory_mib_per_node
    return Request(
        submit_time=job.submit_time,
        gpus=_gpus(gang),
        nodes=gang.nodes_min,
        nodes_most=None if job.leaves_nodes_open else gang.most_nodes,
        cpus=max(gang.cpus, gang.cpus_per_node * gang.nodes_min),
        memory_mib=None if memory_mib is None else memory_mib * gang.nodes_min,
        time_limit_s=job.time_limit_s,
        tasks=_tasks(job),
        partitions=job.partitions,
        account=job.account,
        is_resized=is_resized,
    )


def _gpus(gang: GangRequest) -> int | None:
    """Return the GPUs over all nodes at least; of a request per socket, as if every node had one socket."""
    if not gang.gpus_known or gang.gpu_count is not None:
        return gang.gpu_count
    return sum(gpus.count for gpus in gang.per_socket) * gang.nodes_min


def _tasks(job: Job) -> int | None:
    if job.array is None or job.array.task_id is not None:
        return 1
    # Slurm cuts a long list of tasks.
    if job.array.waiting.endswith(_CUT):
        return None
    waiting = waiting_tasks(job.array.waiting)
    return waiting if not job.array.max_running else min(waiting, job.array.max_running)


def _of_own_size(asked: Request, amount: float | None) -> float | None:
    """Return an amount that a resize of ours changes too; None where there is one, all of it for None."""
    return None if asked.is_resized else _or_all(amount)


def _or_all(amount: float | None) -> float:
    return math.inf if amount is None else amount


# Each amount with its words; None is not compared.
_AMOUNTS: Final[Collection[tuple[Callable[[Request], float | None], Callable[[float], str]]]] = (
    (lambda asked: asked.gpus, lambda gpus: plural(int(gpus), "GPU")),
    (lambda asked: asked.nodes, lambda nodes: plural(int(nodes), "node")),
    (lambda asked: asked.nodes_most, lambda nodes: f"at most {plural(int(nodes), 'node')}"),
    (lambda asked: _of_own_size(asked, asked.cpus), lambda cpus: plural(int(cpus), "CPU")),
    (
        lambda asked: _of_own_size(asked, asked.memory_mib),
        lambda mib: "all memory of its nodes" if math.isinf(mib) else f"{mib:.0f} MiB of memory",
    ),
    (
        lambda asked: _or_all(asked.time_limit_s),
        lambda limit_s: "no time limit" if math.isinf(limit_s) else f"a time limit of {duration(limit_s)}",
    ),
    (lambda asked: asked.tasks, lambda tasks: f"{plural(int(tasks), 'task')} at the same time"),
)
