"""Defines the diagnosis of a pending job: why it is not starting, what would change that, and what Slurm calls it."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.particulars import FairShare
from advisor.domain.plan import Evidence
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


# The possible causes of "Resources", and of 26.05's words for one switch or block.
RESOURCES = frozenset(
    {
        Cause.GPUS,
        Cause.FRAGMENTATION,
        Cause.CPUS_OR_MEMORY,
        Cause.REQUIRED_NODES,
        Cause.NODES_UNAVAILABLE,
        Cause.SWITCHES,
        Cause.IMPOSSIBLE,
    }
)

# The reasons of jobs that the scheduler has considered, which are therefore eligible.
CONTENTION = RESOURCES | {Cause.PRIORITY}

_BY_WORD: Mapping[str, frozenset[Cause]] = {
    "": frozenset(),
    "None": frozenset(),
    "Priority": frozenset({Cause.PRIORITY}),
    "Resources": RESOURCES,
    "Dependency": frozenset({Cause.DEPENDENCY}),
    "DependencyNeverSatisfied": frozenset({Cause.DEPENDENCY_NEVER}),
    "BeginTime": frozenset({Cause.BEGIN_TIME}),
    "JobHeldUser": frozenset({Cause.HELD_BY_USER}),
    "JobHeldAdmin": frozenset({Cause.HELD_BY_ADMIN}),
    "JobHoldMaxRequeue": frozenset({Cause.HELD}),
    "JobArrayTaskLimit": frozenset({Cause.ARRAY_LIMIT}),
    "Licenses": frozenset({Cause.LICENSES}),
    "BadConstraints": frozenset({Cause.IMPOSSIBLE}),
    "Constraints": frozenset({Cause.IMPOSSIBLE}),
    "PartitionDown": frozenset({Cause.PARTITION_DOWN}),
    "PartitionInactive": frozenset({Cause.PARTITION_DOWN}),
    "PartitionNodeLimit": frozenset({Cause.PARTITION_LIMIT}),
    "PartitionTimeLimit": frozenset({Cause.PARTITION_LIMIT}),
    "PartitionConfig": frozenset({Cause.PARTITION_LIMIT}),
    "MaxMemPerLimit": frozenset({Cause.PARTITION_LIMIT}),
    "AccountNotAllowed": frozenset({Cause.ASSOCIATION_LIMIT}),
    "AccountingPolicy": frozenset({Cause.ASSOCIATION_LIMIT}),
    "InvalidAccount": frozenset({Cause.ASSOCIATION_LIMIT}),
    "InvalidQOS": frozenset({Cause.QOS_LIMIT}),
    "NodeDown": frozenset({Cause.NODES_UNAVAILABLE}),
}

# Slurm puts node names and explanations behind some words, with spaces or underscores between.
_BY_OPENING: Mapping[str, frozenset[Cause]] = {
    "Assoc": frozenset({Cause.ASSOCIATION_LIMIT}),
    "QOS": frozenset({Cause.QOS_LIMIT}),
    "Reservation": frozenset({Cause.RESERVATION}),
    "ReqNodeNotAvail": frozenset({Cause.NODES_UNAVAILABLE, Cause.RESERVATION, Cause.REQUIRED_NODES}),
    "Nodes_required_for_job_are_DOWN": frozenset({Cause.NODES_UNAVAILABLE, Cause.PRIORITY, Cause.RESERVATION}),
    "Insufficient_resources_in_topology_unit": RESOURCES,
    "job_requeued_in_held_state": frozenset({Cause.HELD}),
    "launch_failed_requeued_held": frozenset({Cause.HELD}),
}


def causes_named(reason: str) -> frozenset[Cause]:
    """Return the possible causes of a reason; none if it names none, UNKNOWN for unknown words."""
    exact = _BY_WORD.get(reason)
    if exact is not None:
        return exact
    spelled = reason.replace(" ", "_")
    if reservation_is_gone(reason):
        return frozenset({Cause.HELD})
    for opening, causes in _BY_OPENING.items():
        if spelled.startswith(opening):
            return causes
    # Limits of a QOS per account are the only ones that do not say whose they are: MaxGRESPerAccount.
    if spelled.startswith("Max") and spelled.endswith("PerAccount"):
        return frozenset({Cause.QOS_LIMIT})
    return frozenset({Cause.UNKNOWN})


def reservation_is_gone(reason: str) -> bool:
    """Return whether Slurm holds a job since the reservation that it asks for has ended or was deleted."""
    spelled = reason.replace(" ", "_")
    return spelled == "ReservationDeleted" or (spelled.startswith("Reservation_") and spelled.endswith("_was_deleted"))


def gives_no_reason(reason: str) -> bool:
    """Return whether Slurm gives no reason yet, as before its first attempt to start a job and after every change."""
    return not causes_named(reason)
