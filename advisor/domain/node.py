"""Defines nodes and their use."""

from dataclasses import dataclass

from advisor.domain.gang import MOST, ShareCount


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GpuPool:
    """The whole GPUs of one type on a node; `used` is None if the source cannot tell."""

    gpu_type: str | None = None
    total: int
    used: int | None = 0

    def __post_init__(self) -> None:
        if not 0 <= self.total <= MOST or not 0 <= (self.used or 0) <= MOST:
            raise ValueError(f"{self.used} of {self.total} GPUs are no use of a node")

    @property
    def idle(self) -> int:
        """GPUs that no job holds; 0 if their use is unknown, so that nothing is promised."""
        return 0 if self.used is None else max(0, self.total - self.used)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GresPool:
    """The units of a generic resource of a node that is no GPU, nor part of one."""

    name: str
    gres_type: str | None = None
    total: int
    used: int = 0


# A node in one of these states, or with one of these flags, starts no new job.
_CLOSED = frozenset(
    (
        "BLOCKED",
        "DOWN",
        "DRAIN",
        "DRAINED",
        "DRAINING",
        "ERROR",
        "FAIL",
        "FAILING",
        "FUTURE",
        "INVAL",
        "INVALID_REG",
        "MAINT",
        "MAINTENANCE",
        "NOT_RESPONDING",
        "POWERING_DOWN",
        "POWER_DOWN",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
        "RESERVED",
        "UNKNOWN",
    )
)
# The closed states that a reservation puts a node in, and that end with it.
_RESERVED = frozenset(("MAINT", "MAINTENANCE", "RESERVED"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node with its capacity and use.

    `state` is Slurm's base state and `flags` its flags, both in capitals, flags sorted.
    `reason` is free text of an administrator or a health check. CPUs and memory are those that jobs can have, without
    what is reserved for the system. `tmp_disk_mib` is None where the source cannot tell.
    """

    name: str
    state: str
    flags: tuple[str, ...] = ()
    reason: str = ""
    cpus: int
    cpus_used: int = 0
    memory_mib: int
    memory_used_mib: int = 0
    gpus: tuple[GpuPool, ...] = ()
    shares: tuple[ShareCount, ...] = ()
    gres: tuple[GresPool, ...] = ()
    tmp_disk_mib: int | None = None
    threads_per_core: int = 1
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    weight: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.cpus <= MOST or not 0 <= self.cpus_used <= MOST:
            raise ValueError(f"node {self.name} has {self.cpus_used} of {self.cpus} CPUs in use, which cannot be")
        if not 0 <= self.memory_mib <= MOST**2 or not 0 <= self.memory_used_mib <= MOST**2:
            raise ValueError(f"node {self.name} has {self.memory_mib} MiB of memory, which cannot be")

    @property
    def is_usable(self) -> bool:
        """Whether Slurm would start a new job here if it fitted."""
        return self.state not in _CLOSED and not _CLOSED.intersection(self.flags)

    @property
    def is_only_reserved(self) -> bool:
        """Whether a reservation alone keeps Slurm from starting other jobs here."""
        closing = _CLOSED.intersection((self.state, *self.flags))
        return bool(closing) and closing <= _RESERVED
