"""Defines nodes and their use."""

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import MOST, ShareCount


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GpuPool:
    """The whole GPUs of one type on a node; `used` is None if the source cannot tell.

    `reserved` of those that no job holds are kept for the jobs of a reservation of a part of the node.
    """

    gpu_type: str | None = None
    total: int
    used: int | None = 0
    reserved: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.total <= MOST or not 0 <= (self.used or 0) <= MOST or not 0 <= self.reserved <= MOST:
            raise ValueError(f"{self.used} of {self.total} GPUs are no use of a node")

    @property
    def idle(self) -> int:
        """GPUs that any job can have; 0 if their use is unknown, so that nothing is promised."""
        return 0 if self.used is None else max(0, self.total - self.used - self.reserved)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GresPool:
    """The units of a generic resource of a node that is no GPU, nor part of one."""

    name: str
    gres_type: str | None = None
    total: int
    used: int = 0


class NodeService(StrEnum):
    """Whether slurmctld starts jobs on a node: now, later without an operator, or not before an operator acts."""

    NOW = "now"
    LATER = "later"
    OUT = "out"


# Every word that Slurm has for the state of a node, by what it does to new jobs where no other word decides.
# `python -m tools.stage.node_states` has it observed on live clusters (docs/node-states.md).
_SERVICE: Final[Mapping[str, NodeService]] = {
    word: service
    for service, words in {
        NodeService.NOW: "ALLOCATED CLOUD DYNAMIC_FUTURE DYNAMIC_NORM EXTERNAL IDLE MIXED PERFCTRS PLANNED "
        "POWERED_DOWN POWERING_UP POWER_UP REBOOT_CANCELED REBOOT_REQUESTED",
        NodeService.LATER: "BLOCKED COMPLETING MAINT MAINTENANCE NOT_RESPONDING POWERING_DOWN POWER_DOWN POWER_DRAIN "
        "REBOOT_ISSUED RESERVED UNKNOWN",
        NodeService.OUT: "DOWN DRAIN DRAINED DRAINING ERROR FAIL FAILING FUTURE INVAL INVALID INVALID_REG",
    }.items()
    for word in words.split()
}
# A node that boots does not respond, and takes jobs; one that is to be powered down takes jobs until it is idle.
_BOOTS: Final = frozenset(("POWERED_DOWN", "POWERING_UP"))
_SILENT: Final = frozenset(("NOT_RESPONDING",))
_BUSY: Final = frozenset(("MIXED", "ALLOCATED"))
# Slurm itself drains nodes that it is to reboot or to power down, or counts them as down, and brings them back.
_RETURNS: Final = frozenset(("POWER_DOWN", "POWER_DRAIN", "REBOOT_ISSUED", "REBOOT_REQUESTED"))
_RESERVED: Final = frozenset(("MAINT", "MAINTENANCE", "RESERVED"))
# With these words slurmctld refuses State=RESUME, or takes it and starts nothing.
_NOT_RESUMED: Final = frozenset(("COMPLETING", "FUTURE", "INVAL", "INVALID", "INVALID_REG")) | _SILENT


def is_known(word: str) -> bool:
    """Return whether a word of a node's state is one of Slurm's."""
    return word in _SERVICE


@lru_cache(4096)
def _judged(words: tuple[str, ...], *, shared: bool) -> tuple[NodeService, frozenset[str]]:
    """Return the service of a node in a state, and the words that keep it from taking jobs now.

    `shared` is whether its reservations leave some of it to other jobs.
    """
    aside = {"RESERVED"} if shared else set()
    if not _BOOTS.isdisjoint(words):
        aside |= _SILENT
    if not _BUSY.isdisjoint(words):
        aside.add("POWER_DOWN")
    closing = frozenset(word for word in words if _SERVICE.get(word) is not NodeService.NOW) - aside
    if not closing:
        return NodeService.NOW, closing
    # Of a word that is not known nothing follows, least of all that the node is out of service.
    out = any(_SERVICE.get(word) is NodeService.OUT for word in closing) and _RETURNS.isdisjoint(words)
    return (NodeService.OUT if out else NodeService.LATER), closing


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node with its capacity and use.

    `state` is Slurm's base state and `flags` its flags, both in capitals, flags sorted.
    `reason` is free text of an administrator or a health check. CPUs and memory are those that jobs can have, without
    what is reserved for the system. `tmp_disk_mib` is None where the source cannot tell. `cpus_reserved` are the idle
    CPUs that reservations of a part of the node keep for their jobs, None for a node that is reserved as a whole, or of
    which it is not known.
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
    cpus_reserved: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.cpus <= MOST or not 0 <= self.cpus_used <= MOST:
            raise ValueError(f"node {self.name} has {self.cpus_used} of {self.cpus} CPUs in use, which cannot be")
        if not 0 <= self.memory_mib <= MOST**2 or not 0 <= self.memory_used_mib <= MOST**2:
            raise ValueError(f"node {self.name} has {self.memory_mib} MiB of memory, which cannot be")

    @property
    def service(self) -> NodeService:
        """Whether and when slurmctld starts new jobs here if they fit."""
        return self._answer[0]

    @property
    def is_usable(self) -> bool:
        """Whether Slurm would start a new job here now if it fitted."""
        return self.service is NodeService.NOW

    @property
    def is_reserved(self) -> bool:
        """Whether a reservation holds it, or a part of it."""
        return "RESERVED" in self.flags

    @property
    def is_only_reserved(self) -> bool:
        """Whether a reservation alone keeps Slurm from starting other jobs here."""
        closing = self._answer[1]
        return bool(closing) and closing <= _RESERVED

    @property
    def can_be_resumed(self) -> bool:
        """Whether slurmctld takes State=RESUME for this node, and starts jobs here then."""
        return self.service is NodeService.OUT and _NOT_RESUMED.isdisjoint((self.state, *self.flags))

    @property
    def boots(self) -> bool:
        """Whether a job that Slurm starts here waits for the machine to boot."""
        return not _BOOTS.isdisjoint(self.flags)

    @property
    def _answer(self) -> tuple[NodeService, frozenset[str]]:
        return _judged((self.state, *self.flags), shared=self.cpus_reserved is not None)
