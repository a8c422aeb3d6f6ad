"""Defines the diagnosis of a pending job: why it is not starting, and what would change that."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from advisor.domain.plan import Evidence


class Cause(StrEnum):
    """The classes of answer to "why is my job not starting?"."""

    ABSENT = "absent"
    STARTED = "started"
    HELD_BY_USER = "held_by_user"
    HELD_BY_ADMIN = "held_by_admin"
    HELD = "held"
    DEPENDENCY = "dependency"
    DEPENDENCY_NEVER = "dependency_never"
    BEGIN_TIME = "begin_time"
    PARTITION_DOWN = "partition_down"
    PARTITION_LIMIT = "partition_limit"
    ASSOCIATION_LIMIT = "association_limit"
    QOS_LIMIT = "qos_limit"
    ARRAY_LIMIT = "array_limit"
    RESERVATION = "reservation"
    LICENSES = "licenses"
    IMPOSSIBLE = "impossible"
    NODES_UNAVAILABLE = "nodes_unavailable"
    PRIORITY = "priority"
    GPUS = "gpus"
    FRAGMENTATION = "fragmentation"
    CPUS_OR_MEMORY = "cpus_or_memory"
    SWITCHES = "switches"
    NOT_TRIED = "not_tried"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause that keeps a job from starting: a sentence, the numbers behind it, what would change it."""

    cause: Cause
    text: str
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityFactors:
    """The weighted parts of a job's priority as `sprio` prints them; None for those that it does not print."""

    site: int | None = None
    age: int | None = None
    association: int | None = None
    fair_share: int | None = None
    job_size: int | None = None
    partition: int | None = None
    qos: int | None = None
    tres: int | None = None
    nice: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The causes that keep one job from starting, most binding first.

    `slurm_reason` is Slurm's reason, raw. `disagreement` states how our count and Slurm's reason differ, None if they
    agree. `unread` lists in plain words what could not be read and so was not judged.
    """

    job_id: int
    slurm_reason: str
    first: Finding
    further: tuple[Finding, ...] = ()
    disagreement: str | None = None
    unread: tuple[str, ...] = ()

    @property
    def cause(self) -> Cause:
        """The class of the most binding cause."""
        return self.first.cause
