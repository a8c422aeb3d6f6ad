"""Finds why Slurm does not consider a job, whatever is idle: holds, dependencies, limits, partitions."""

from collections.abc import Iterator
from typing import Final

from advisor.diagnose.dependencies import dependency_evidence
from advisor.diagnose.inquiry import Inquiry
from advisor.diagnose.requests import gpus_by_type
from advisor.diagnose.reserved_nodes import own_reservation
from advisor.diagnose.shortage import impossible
from advisor.domain.diagnosis import Cause, Finding, Variant
from advisor.domain.facts import Evidence
from advisor.domain.job import Job, JobState
from advisor.domain.particulars import ReachedLimit
from advisor.domain.site import Partition
from advisor.domain.slurm_reasons import CONTENTION, causes_named, reservation_is_gone
from advisor.domain.units import MINUTE_S
from advisor.features.capacity import asks_beyond_nodes


def gates(inquiry: Inquiry) -> Iterator[Finding]:
    """Yield the findings that keep Slurm from considering the job, most binding first."""
    for gate in (
        _hold,
        _dependency,
        _begin_time,
        _partitions_down,
        _partition_limits,
        impossible,
        own_reservation,
        _licences,
        _slurm_limit,
        _array,
    ):
        finding = gate(inquiry)
        if finding is not None:
            yield finding


_HOLDERS = (Cause.HELD_BY_USER, Cause.HELD_BY_ADMIN, Cause.HELD)


def _hold(inquiry: Inquiry) -> Finding | None:
    job = inquiry.job
    if not job.held and job.priority != 0:
        return None
    named = causes_named(job.reason)
    if Cause.IMPOSSIBLE in named and len(named) == 1:
        # Slurm holds jobs that it found impossible; `_slurm_limit` gives the reason.
        return None
    cause = next((holder for holder in _HOLDERS if holder in named), Cause.HELD)
    variant = Variant.RESERVATION_GONE if reservation_is_gone(job.reason) else Variant.SEEN
    return Finding(cause=cause, variant=variant)


def _dependency(inquiry: Inquiry) -> Finding | None:
    job = inquiry.job
    if Cause.DEPENDENCY_NEVER in causes_named(job.reason):
        return Finding(cause=Cause.DEPENDENCY_NEVER, evidence=dependency_evidence(inquiry.snapshot, job))
    if job.dependency:
        return Finding(cause=Cause.DEPENDENCY, evidence=dependency_evidence(inquiry.snapshot, job))
    return None


def _begin_time(inquiry: Inquiry) -> Finding | None:
    eligible_time = inquiry.job.eligible_time
    if eligible_time is None and Cause.BEGIN_TIME in causes_named(inquiry.job.reason):
        return Finding(cause=Cause.BEGIN_TIME)
    # Slurm's clock and the reader's may differ by seconds: a job that Slurm has looked for is eligible.
    tried = not causes_named(inquiry.job.reason).isdisjoint(CONTENTION)
    if eligible_time is None or eligible_time <= inquiry.snapshot.taken_at or tried:
        return None
    wait_s = eligible_time - inquiry.snapshot.taken_at
    return Finding(cause=Cause.BEGIN_TIME, evidence={"eligible_time": eligible_time, "wait_s": wait_s})


def _partitions_down(inquiry: Inquiry) -> Finding | None:
    if not inquiry.partitions or any(partition.is_up for partition in inquiry.partitions):
        return None
    names = ",".join(partition.name for partition in inquiry.partitions)
    return Finding(cause=Cause.PARTITION_DOWN, evidence={"partitions": names})


def _partition_limits(inquiry: Inquiry) -> Finding | None:
    """Find whether the job asks for more time or nodes than any of its partitions allows."""
    exceeded = [_exceeded(inquiry.job, partition) for partition in inquiry.partitions]
    if not exceeded or not all(exceeded):
        return None
    evidence: dict[str, Evidence] = {"partitions": ",".join(partition.name for partition in inquiry.partitions)}
    for limits in exceeded:
        evidence |= limits
    return Finding(cause=Cause.PARTITION_LIMIT, evidence=evidence)


def _exceeded(job: Job, partition: Partition) -> dict[str, Evidence]:
    limits: dict[str, Evidence] = {}
    if job.time_limit_s is not None and partition.max_time_s is not None and job.time_limit_s > partition.max_time_s:
        limits |= {"time_limit_s": job.time_limit_s, "partition_max_time_s": partition.max_time_s}
    most = partition.max_nodes_per_job
    if most is not None and job.gang.nodes_min > most:
        limits |= {"nodes_asked": job.gang.nodes_min, "partition_max_nodes": most}
    elif most is not None and asks_beyond_nodes(job.gang, most):
        limits |= {"nodes_asked": job.gang.most_nodes or most, "partition_max_nodes": most}
    if job.gang.most_nodes is not None and job.gang.most_nodes < partition.min_nodes_per_job:
        limits |= {"nodes_asked": job.gang.most_nodes, "partition_min_nodes": partition.min_nodes_per_job}
    return limits


# Limits that jobs share and Slurm alone can count.
_SHARED: Final = frozenset({Cause.ASSOCIATION_LIMIT, Cause.QOS_LIMIT})
# Other causes that only Slurm knows.
_NAMED: Final = frozenset({Cause.PARTITION_LIMIT, Cause.LICENSES, Cause.RESERVATION, Cause.IMPOSSIBLE})


def _slurm_limit(inquiry: Inquiry) -> Finding | None:
    """Return the limit that Slurm names, if the snapshot cannot show it."""
    named = causes_named(inquiry.job.reason)
    if len(named) != 1:
        return None
    (cause,) = named
    evidence: dict[str, Evidence] = {"slurm_reason": inquiry.job.reason}
    if cause in _SHARED:
        if (limit := inquiry.particulars.limit) is not None:
            return Finding(cause=cause, evidence=evidence | _limit_evidence(limit, inquiry.job))
        variant = Variant.NAMED_FOR_ONE_JOB if _concerns_one_job(inquiry.job.reason) else Variant.NAMED
        return Finding(cause=cause, variant=variant, evidence=evidence)
    seen = {
        Cause.PARTITION_LIMIT: _partition_limits,
        Cause.IMPOSSIBLE: impossible,
        Cause.RESERVATION: own_reservation,
        Cause.LICENSES: _licences,
    }
    if cause not in _NAMED or (cause in seen and seen[cause](inquiry) is not None):
        return None
    return Finding(cause=cause, variant=Variant.NAMED, evidence=evidence)


def _limit_evidence(limit: ReachedLimit, job: Job) -> dict[str, Evidence]:
    """Return a limit, how far it is used, and what the job asks of it, as far as that is known."""
    evidence: dict[str, Evidence] = {"limit": limit.name, "most": limit.most}
    holders = {"tres": limit.tres, "of_qos": limit.qos, "of_account": limit.account, "of_user": limit.user}
    evidence |= {name: holder for name, holder in holders.items() if holder}
    if limit.used is not None:
        evidence["used"] = limit.used
    if (asked := _asked(limit, job)) is not None:
        evidence["asked"] = asked
    return evidence


def _asked(limit: ReachedLimit, job: Job) -> int | None:
    """Return how much a job asks for of what is limited; None where that is not known."""
    minutes = None if job.time_limit_s is None else round(job.time_limit_s / MINUTE_S)
    if not limit.tres:
        return minutes if "Wall" in limit.name else None
    amount = _amount_asked(limit.tres, job)
    if amount is None or limit.name.endswith("PN"):
        return None
    if "Mins" in limit.name:
        return None if minutes is None else amount * minutes
    return amount


def _amount_asked(tres: str, job: Job) -> int | None:
    if tres == "cpu":
        return job.gang.cpus
    if tres == "gres/gpu":
        return job.gang.gpu_count
    gpu_type = tres.removeprefix("gres/gpu:")
    by_type = gpus_by_type(job.gang)
    return None if by_type is None or gpu_type == tres else by_type.get(gpu_type)


def _licences(inquiry: Inquiry) -> Finding | None:
    """Return the first licence of which too few are free; None where none is, or they were not read."""
    if Cause.LICENSES not in causes_named(inquiry.job.reason):
        return None
    short = next((licence for licence in inquiry.particulars.licences if licence.free < licence.asked), None)
    if short is None:
        return None
    evidence: dict[str, Evidence] = {
        "licence": short.name,
        "licences_asked": short.asked,
        "licences_free": short.free,
        "licences_in_all": short.total,
    }
    if short.reserved:
        evidence["licences_reserved"] = short.reserved
        holders = [
            each
            for each in inquiry.particulars.reservations or ()
            if short.name in each.licences and each.start_time <= inquiry.snapshot.taken_at < each.end_time
        ]
        if holders:
            evidence["reservations"] = ",".join(sorted(each.name for each in holders))
            evidence["end_time"] = max(each.end_time for each in holders)
    return Finding(cause=Cause.LICENSES, evidence=evidence)


def _concerns_one_job(reason: str) -> bool:
    """Return whether the limit applies to each job alone, as AssocMaxGRESPerJob and QOSMinGRES do."""
    return "PerJob" in reason or "PerNode" in reason or reason.startswith("QOSMin")


def _array(inquiry: Inquiry) -> Finding | None:
    array = inquiry.job.array
    if array is None or not array.max_running:
        return None
    running = sum(
        job.array is not None and job.array.array_job_id == array.array_job_id and job.state is JobState.RUNNING
        for job in inquiry.snapshot.jobs
    )
    if running < array.max_running:
        return None
    return Finding(
        cause=Cause.ARRAY_LIMIT,
        evidence={"array_tasks_running": running, "array_max_running": array.max_running},
    )
