"""Finds why Slurm does not consider a job, whatever is idle: holds, dependencies, limits, partitions."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from advisor.diagnose.inquiry import Inquiry
from advisor.diagnose.reserved_nodes import own_reservation
from advisor.diagnose.shortage import impossible
from advisor.domain.dataclass import dataclass
from advisor.domain.diagnosis import CONTENTION, Cause, Finding, Variant, causes_named, reservation_is_gone
from advisor.domain.job import Job, JobState
from advisor.domain.particulars import ReachedLimit
from advisor.domain.plan import Evidence
from advisor.domain.site import Partition
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import MINUTE_S
from advisor.features.capacity import asks_beyond_nodes

_HOLDERS = (Cause.HELD_BY_USER, Cause.HELD_BY_ADMIN, Cause.HELD)
# Limits that jobs share and Slurm alone can count.
_SHARED: Final = frozenset({Cause.ASSOCIATION_LIMIT, Cause.QOS_LIMIT})
# Other causes that only Slurm knows.
_NAMED: Final = frozenset({Cause.PARTITION_LIMIT, Cause.LICENSES, Cause.RESERVATION, Cause.IMPOSSIBLE})
_CLAUSE = re.compile(
    r"(?P<kind>[a-z]{1,20})(?::(?P<job>\d{1,15})(?:_(?:\*|\d{1,10}))?(?:\+\d{1,10})?)?(?:\((?P<state>[a-z]{1,20})\))?",
    re.ASCII,
)
_MOST_NAMED = 8


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
    by_type = job.gang.gpus_by_type
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Prerequisite:
    """One job that another depends on: `kind` is Slurm's word, `job_id` None for one that names no job."""

    kind: str
    job_id: int | None = None
    has_failed: bool = False


def prerequisites(dependency: str) -> tuple[Prerequisite, ...]:
    """Return the jobs of a dependency such as `afterok:1(unfulfilled),afterany:6(failed)`; none of what is no such."""
    matches = [_CLAUSE.fullmatch(part) for part in re.split("[,?]", dependency)]
    return tuple(
        Prerequisite(
            kind=match["kind"],
            job_id=None if match["job"] is None else int(match["job"]),
            has_failed=match["state"] == "failed",
        )
        for match in matches
        if match is not None
    )


def dependency_evidence(snapshot: Snapshot, job: Job) -> dict[str, Evidence]:
    """Return what a job depends on, and the state of these jobs: lists of ids, as far as the queue shows them.

    `ends_time` is when the last of those that run ends by its time limit, where all that count run.
    """
    wanted = prerequisites(job.dependency)
    evidence: dict[str, Evidence] = {"dependency": job.dependency}
    if kinds := dict.fromkeys(prerequisite.kind for prerequisite in wanted):
        evidence["kinds"] = ",".join(kinds)
    if "?" in job.dependency:
        evidence["any_will_do"] = 1
    ids = dict.fromkeys(job_id for prerequisite in wanted for job_id in _ids(snapshot, job, prerequisite))
    failed = {prerequisite.job_id for prerequisite in wanted if prerequisite.has_failed}
    states: dict[str, list[int]] = {"failed": [], "running": [], "pending": [], "gone": []}
    for job_id in ids:
        states["failed" if job_id in failed else _state(snapshot, job_id)].append(job_id)
    evidence |= {f"{state}_jobs": _list(members) for state, members in states.items() if members}
    ends = [snapshot.jobs_by_id[job_id].end_time for job_id in states["running"] if job_id in snapshot.jobs_by_id]
    known = [end for end in ends if end is not None]
    if known and len(known) == len(ids):
        evidence["ends_time"] = max(known)
    return evidence


def _ids(snapshot: Snapshot, job: Job, prerequisite: Prerequisite) -> Iterator[int]:
    if prerequisite.job_id is not None:
        yield prerequisite.job_id
    elif prerequisite.kind == "singleton":
        yield from (
            other.job_id
            for other in sorted(snapshot.jobs, key=lambda other: other.job_id)
            if (other.name, other.user) == (job.name, job.user) and other.job_id < job.job_id
        )


def _state(snapshot: Snapshot, job_id: int) -> str:
    """Return the state of a job, or of an array by its first record that waits."""
    records = [
        other
        for other in snapshot.jobs
        if other.job_id == job_id or (other.array is not None and other.array.array_job_id == job_id)
    ]
    if not records:
        return "gone"
    return "pending" if any(record.is_pending for record in records) else "running"


def _list(job_ids: Sequence[int]) -> str:
    more = f" and {len(job_ids) - _MOST_NAMED} more" if len(job_ids) > _MOST_NAMED else ""
    return ", ".join(str(job_id) for job_id in job_ids[:_MOST_NAMED]) + more
