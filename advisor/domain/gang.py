"""Defines gangs: the GPUs of a job, which must start together, in every form of request that Slurm has."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from advisor.domain.dataclass import dataclass

# Far above any cluster; a larger number is damage or malice, and would overflow the arrays of the planner.
MOST = 10**8


_FEATURES = re.compile(r"[\w.-]+(?:&[\w.-]+)*", re.ASCII)
# A slice of a GPU (MIG) in the name of a type: `1g.10gb`, `nvidia_h200_nvl_4g.71gb`, `1g.5gb+me`, `1c.3g.20gb`.
_SLICE: Final = re.compile(r"(?:^|[^0-9a-z]|mig)([1-7])g[._-]?\d+gb", re.ASCII)
# The parts that a GPU has; a profile names how many of them it takes.
_PARTS: Final = 7


@lru_cache(4096)
def share_of_gpu(gpu_type: str | None) -> float:
    """Return the share of a whole GPU that one of a type is: less than 1 for a slice of a GPU."""
    found = None if gpu_type is None else _SLICE.search(gpu_type.lower())
    return 1.0 if found is None else int(found[1]) / _PARTS


def whole_gpus(counts: Iterable[tuple[str | None, int]]) -> int:
    """Add up counts of GPUs by type as whole ones, slices as their share, rounded up."""
    return math.ceil(round(sum(count * share_of_gpu(gpu_type) for gpu_type, count in counts), 6))


class GpuScope(StrEnum):
    """What a GPU count is counted per; the value names Slurm's field."""

    JOB = "per_job"
    NODE = "per_node"
    SOCKET = "per_socket"
    TASK = "per_task"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GpuCount:
    """A number of whole GPUs, of one type or of any (`gpu_type` None)."""

    gpu_type: str | None = None
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.count <= MOST:
            raise ValueError(f"GPU count {self.count} is negative or above {MOST}")

    def __str__(self) -> str:
        return f"{self.gpu_type or 'gpu'}:{self.count}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ShareCount:
    """Parts of GPUs (`kind` is Slurm's GRES name, "mps" or "shard"), never mixed with whole ones."""

    kind: str
    gpu_type: str | None = None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GresCount:
    """A count of a generic resource that is no GPU, nor part of one, per node; `gres_type` None is any type."""

    name: str
    gres_type: str | None = None
    count: int

    def __str__(self) -> str:
        named = f"{self.name}:{self.gres_type}" if self.gres_type else self.name
        power = max((power for power in range(5) if self.count % 1024**power == 0), default=0) if self.count else 0
        return f"{named}:{self.count // 1024**power}{' KMGT'[power].strip()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRequest:
    """Slurm's own delay timer: wait up to `max_wait_s` for at most `count` leaf switches."""

    count: int
    max_wait_s: float

    def __str__(self) -> str:
        return f"{self.count}@{self.max_wait_s:.0f}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRequest:
    """The resources that must be granted together before a job starts.

    Each `per_*` field holds the counts of that request form, sorted; a job can use several. `gpus_known` is False where
    the source cannot tell (never read as "no GPUs"). `nodes_max` None means that the job leaves the node count open;
    with `nodes_open` it does so too, and `nodes_max` is Slurm's estimate. `memory_mib_per_node` None means unknown or
    all of the node's. `cpus_per_node`, `tmp_disk_mib` and `gres` are what every node has to give at least,
    `tasks_per_node` is how many of the tasks one node takes at most, None for any number. `only_beside` is a user who
    shares no node with other users (`--exclusive=user`). `uncounted` names the options of the request that no fit
    counts.
    """

    per_job: tuple[GpuCount, ...] = ()
    per_node: tuple[GpuCount, ...] = ()
    per_socket: tuple[GpuCount, ...] = ()
    per_task: tuple[GpuCount, ...] = ()
    shares: tuple[ShareCount, ...] = ()
    gpus_known: bool = True
    nodes_min: int = 1
    nodes_max: int | None = None
    nodes_open: bool = False
    tasks: int = 1
    cpus: int = 1
    cpus_per_gpu: int | None = None
    memory_mib_per_node: int | None = None
    cpus_per_node: int = 1
    tasks_per_node: int | None = None
    tmp_disk_mib: int = 0
    gres: tuple[GresCount, ...] = ()
    exclusive: bool = False
    only_beside: str = ""
    uncounted: tuple[str, ...] = ()
    switches: SwitchRequest | None = None
    features: str = ""
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.nodes_min <= MOST or not 1 <= self.tasks <= MOST or not 0 <= self.cpus <= MOST:
            raise ValueError(f"{self.nodes_min} nodes, {self.tasks} tasks, {self.cpus} CPUs are no request")
        if not 0 <= (self.cpus_per_gpu or 0) <= MOST:
            raise ValueError(f"{self.cpus_per_gpu} CPUs per GPU are no request")
        if self.nodes_max is not None and not 1 <= self.nodes_max <= MOST:
            raise ValueError(f"{self.nodes_max} nodes at most are no request")
        if not 0 <= (self.memory_mib_per_node or 0) <= MOST**2:
            raise ValueError(f"{self.memory_mib_per_node} MiB per node are no request")

    @property
    def most_nodes(self) -> int | None:
        """The most nodes that the job takes, None where it does not bound them."""
        return None if self.nodes_open else self.nodes_max

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features that every node must have; none if it asks for none, or for alternatives or counts of them."""
        return tuple(self.features.split("&")) if _FEATURES.fullmatch(self.features) else ()

    def counts(self, scope: GpuScope) -> tuple[GpuCount, ...]:
        """Return the counts asked in one form."""
        match scope:
            case GpuScope.JOB:
                return self.per_job
            case GpuScope.NODE:
                return self.per_node
            case GpuScope.SOCKET:
                return self.per_socket
            case GpuScope.TASK:
                return self.per_task

    def with_counts(self, scope: GpuScope, counts: tuple[GpuCount, ...]) -> "GangRequest":
        """Return the same request with other counts in one form."""
        match scope:
            case GpuScope.JOB:
                return replace(self, per_job=counts)
            case GpuScope.NODE:
                return replace(self, per_node=counts)
            case GpuScope.SOCKET:
                return replace(self, per_socket=counts)
            case GpuScope.TASK:
                return replace(self, per_task=counts)

    @property
    def scope(self) -> GpuScope | None:
        """The form that decides the size, or None for a job without whole GPUs.

        Slurm lets several forms stand together; the total (`--gpus`) then binds the others.
        """
        if self.per_job:
            return GpuScope.JOB
        if self.per_node:
            return GpuScope.NODE
        if self.per_socket:
            return GpuScope.SOCKET
        return GpuScope.TASK if self.per_task else None

    @property
    def gpu_count(self) -> int | None:
        """The least number of whole GPUs of the gang, `MOST` at most; 0 for none, None if the request leaves it open.

        A per-socket request depends on the node's sockets, so it does not determine the number.
        """
        # In plain steps, as a cycle asks for it several times for every job.
        if not self.gpus_known:
            return None
        if self.per_job:
            return min(_total(self.per_job), MOST)
        if self.per_node:
            return min(_total(self.per_node) * self.nodes_min, MOST)
        if self.per_socket:
            return None
        return min(_total(self.per_task) * self.tasks, MOST)

    @property
    def gpu_share(self) -> float:
        """The share of a whole GPU that each of its GPUs is, in the mean: less than 1 if it asks for slices."""
        counts = () if self.scope is None else self.counts(self.scope)
        gpus = _total(counts)
        return sum(gpu.count * share_of_gpu(gpu.gpu_type) for gpu in counts) / gpus if gpus else 1.0

    @property
    def has_slices(self) -> bool:
        """Whether it asks for slices of GPUs, which are no gang: slices exchange no data with each other."""
        return any(share_of_gpu(gpu.gpu_type) < 1.0 for gpu in self.all_counts)

    @property
    def gpu_type(self) -> str | None:
        """The one GPU type of the request; None for any or several types."""
        counts = self.all_counts
        if len(counts) == 1:
            return counts[0].gpu_type
        types = {gpu.gpu_type for gpu in counts}
        return types.pop() if len(types) == 1 else None

    @property
    def gpus_by_type(self) -> Mapping[str | None, int] | None:
        """The GPUs that it needs at least, by type (None for any); None where the request leaves it open."""
        match self.scope:
            case None:
                return {}
            case GpuScope.JOB:
                return {gpu.gpu_type: gpu.count for gpu in self.per_job}
            case GpuScope.NODE:
                return {gpu.gpu_type: gpu.count * self.nodes_min for gpu in self.per_node}
            case GpuScope.TASK:
                return {gpu.gpu_type: gpu.count * self.tasks for gpu in self.per_task}
            case GpuScope.SOCKET:
                return None

    @property
    def all_counts(self) -> tuple[GpuCount, ...]:
        """Every count of every form."""
        return self.per_job + self.per_node + self.per_socket + self.per_task

    @property
    def wants_gpus(self) -> bool:
        """Whether whole GPUs are asked for in any form."""
        return bool(self.per_job or self.per_node or self.per_socket or self.per_task)


def _total(counts: tuple[GpuCount, ...]) -> int:
    return counts[0].count if len(counts) == 1 else sum(gpu.count for gpu in counts)
