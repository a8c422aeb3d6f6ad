"""Defines the diagnosis of a pending job: why it is not starting, and what would change that."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from advisor.domain.facts import Evidence
from advisor.domain.job import Job
from advisor.domain.particulars import FairShare
from advisor.domain.topology import LocalityTier


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
    REQUIRED_NODES = "required_nodes"
    SWITCHES = "switches"
    NOT_TRIED = "not_tried"
    UNKNOWN = "unknown"


class Variant(StrEnum):
    """The sentences that one cause has: who shows it, and what of several things is lacking."""

    SEEN = "seen"
    NAMED = "named"  # by Slurm; nothing in the snapshot can show it
    NAMED_FOR_ONE_JOB = "named_for_one_job"  # as NAMED, of a limit that bounds each job by itself
    DISPUTED = "disputed"  # Slurm names it, the snapshot does not bear it out
    EMPTY_NODES = "empty_nodes"
    CPUS_OR_MEMORY = "cpus_or_memory"
    CPUS_BESIDE_GPUS = "cpus_beside_gpus"
    MEMORY_BESIDE_GPUS = "memory_beside_gpus"
    BOTH_BESIDE_GPUS = "both_beside_gpus"
    NEEDED_AT_ALL = "needed_at_all"
    NEEDED_NOW = "needed_now"
    COMING = "coming"  # of nodes that take jobs again without an operator
    HIDDEN = "hidden"  # of nodes that the snapshot does not show
    OWN = "own"  # of a reservation: the job asks for it
    RESERVATION_GONE = "reservation_gone"  # of a hold: the reservation of the job has ended or was deleted
    BLOCKING = "blocking"  # of a reservation: it takes the nodes that the job needs


class Concession(StrEnum):
    """The single changes of a request that can let its job fit."""

    MORE_NODES = "more_nodes"
    OPEN_SPLIT = "open_split"
    ANY_GPU_TYPE = "any_gpu_type"
    FEWER_CPUS = "fewer_cpus"
    FEWER_CPUS_PER_GPU = "fewer_cpus_per_gpu"
    LESS_MEMORY = "less_memory"
    EXCLUDED_NODES = "excluded_nodes"
    OTHER_NODES = "other_nodes"
    SHARED_NODES = "shared_nodes"
    FEWER_GPUS = "fewer_gpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A change of the request with which a job would fit now; `count` is the new number, of GiB for memory."""

    concession: Concession
    count: int = 0


class Disagreement(StrEnum):
    """How our count and Slurm's reason differ."""

    POSSIBLE = "possible"
    NOT_BORNE_OUT = "not_borne_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that stands in a job's way, the numbers behind it, and what the job could ask for instead."""

    cause: Cause
    variant: Variant = Variant.SEEN
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The causes that keep one job from starting, most binding first.

    `job` is None where the queue does not hold it, `tier_now` where it fits now by itself. `slurm_reason` is Slurm's
    own word, raw. `share` is the use that counts in its priority, None where it is not known. `unread` says in plain
    words what could not be read and so was not judged.
    """

    job_id: int
    job: Job | None
    taken_at: float
    slurm_reason: str
    first: Finding
    further: tuple[Finding, ...] = ()
    tier_now: LocalityTier | None = None
    disagreement: Disagreement | None = None
    share: FairShare | None = None
    unread: tuple[str, ...] = ()
