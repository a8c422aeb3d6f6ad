"""Maps Slurm's reasons to causes; the words are those of job_state_reason.c and of the texts that replace them."""

from collections.abc import Mapping

from advisor.domain.diagnosis import Cause

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
