"""What keeps a job from being considered at all, whatever is idle: holds, dependencies, limits, partitions."""

from collections.abc import Iterator, Mapping

from advisor.domain.diagnosis import Cause, Finding
from advisor.domain.facts import Evidence
from advisor.domain.job import Job, JobState
from advisor.domain.site import Partition
from advisor.domain.slurm_reasons import CONTENTION, causes_named
from advisor.domain.units import duration
from advisor.planning.inquiry import Inquiry
from advisor.planning.shortage import impossible


def gates(inquiry: Inquiry) -> Iterator[Finding]:
    """Find what keeps the job from being considered, most binding first."""
    for gate in (
        _hold,
        _dependency,
        _begin_time,
        _partitions_down,
        _partition_limits,
        impossible,
        _slurm_limit,
        _array,
    ):
        finding = gate(inquiry)
        if finding is not None:
            yield finding


_HOLDERS: Mapping[Cause, tuple[str, str]] = {
    Cause.HELD_BY_USER: ("its user holds it", "the user"),
    Cause.HELD_BY_ADMIN: ("an administrator holds it, so that its user cannot release it", "an operator"),
    Cause.HELD: ("it is held; Slurm's reason does not say by whom", "the user or an operator"),
}


def _hold(inquiry: Inquiry) -> Finding | None:
    job = inquiry.job
    if not job.held and job.priority != 0:
        return None
    named = causes_named(job.reason)
    if Cause.IMPOSSIBLE in named and len(named) == 1:
        # Slurm holds what it found impossible; `_slurm_limit` tells why.
        return None
    cause = next((holder for holder in _HOLDERS if holder in named), Cause.HELD)
    text, who = _HOLDERS[cause]
    return Finding(cause=cause, text=text, remedies=(f"{who}: scontrol release {job.job_id}",))


def _dependency(inquiry: Inquiry) -> Finding | None:
    job = inquiry.job
    if Cause.DEPENDENCY_NEVER in causes_named(job.reason):
        return Finding(
            cause=Cause.DEPENDENCY_NEVER,
            text="it depends on a job that ended otherwise than it asks, so it can never start",
            evidence={"dependency": job.dependency},
            remedies=(
                f"the user: scancel {job.job_id} and submit anew, or scontrol update JobId={job.job_id} Dependency=",
            ),
        )
    if job.dependency:
        return Finding(
            cause=Cause.DEPENDENCY,
            text="it waits for the jobs it depends on",
            evidence={"dependency": job.dependency},
            remedies=("those jobs end as it asks",),
        )
    return None


def _begin_time(inquiry: Inquiry) -> Finding | None:
    eligible_time = inquiry.job.eligible_time
    if eligible_time is None and Cause.BEGIN_TIME in causes_named(inquiry.job.reason):
        return Finding(cause=Cause.BEGIN_TIME, text="it is not to begin yet; its begin time could not be read")
    # Slurm's clock and the reader's may differ by seconds: a job that Slurm has looked for is eligible.
    tried = not causes_named(inquiry.job.reason).isdisjoint(CONTENTION)
    if eligible_time is None or eligible_time <= inquiry.snapshot.taken_at or tried:
        return None
    wait_s = eligible_time - inquiry.snapshot.taken_at
    return Finding(
        cause=Cause.BEGIN_TIME,
        text=f"it is not to begin before another {duration(wait_s)}",
        evidence={"eligible_time": eligible_time, "wait_s": round(wait_s, 3)},
        remedies=(f"the user: scontrol update JobId={inquiry.job.job_id} StartTime=now",),
    )


def _partitions_down(inquiry: Inquiry) -> Finding | None:
    if not inquiry.partitions or any(partition.is_up for partition in inquiry.partitions):
        return None
    names = ",".join(partition.name for partition in inquiry.partitions)
    return Finding(
        cause=Cause.PARTITION_DOWN,
        text="none of its partitions starts jobs",
        evidence={"partitions": names},
        remedies=(
            "an operator: scontrol update PartitionName=... State=UP",
            f"the user: scontrol update JobId={inquiry.job.job_id} Partition=... if another one will do",
        ),
    )


def _partition_limits(inquiry: Inquiry) -> Finding | None:
    """Find out that the job asks for more time or nodes than each of its partitions allows."""
    exceeded = [_exceeded(inquiry.job, partition) for partition in inquiry.partitions]
    if not exceeded or not all(exceeded):
        return None
    evidence: dict[str, Evidence] = {}
    for limits in exceeded:
        evidence |= limits
    return Finding(
        cause=Cause.PARTITION_LIMIT,
        text=f"it asks for more {' and '.join(_limited(evidence))} than its partitions allow",
        evidence=evidence,
        remedies=("ask for no more than the limit (--time, --nodes), or for another partition",),
    )


def _exceeded(job: Job, partition: Partition) -> dict[str, Evidence]:
    found: dict[str, Evidence] = {}
    if job.time_limit_s is not None and partition.max_time_s is not None and job.time_limit_s > partition.max_time_s:
        found |= {"time_limit_s": job.time_limit_s, "partition_max_time_s": partition.max_time_s}
    if partition.max_nodes_per_job is not None and job.gang.nodes_min > partition.max_nodes_per_job:
        found |= {"nodes_asked": job.gang.nodes_min, "partition_max_nodes": partition.max_nodes_per_job}
    return found


def _limited(evidence: Mapping[str, Evidence]) -> Iterator[str]:
    if "time_limit_s" in evidence:
        yield "time"
    if "nodes_asked" in evidence:
        yield "nodes"


# Limits that jobs share and Slurm alone can count: whose they are, and what would change them.
_SHARED: Mapping[Cause, tuple[str, str]] = {
    Cause.ASSOCIATION_LIMIT: (
        "a limit of its account or user",
        "jobs of the same account or user end, or an operator raises the limit: sacctmgr show associations",
    ),
    Cause.QOS_LIMIT: (
        "a limit of its QOS",
        "jobs of the same QOS end, it asks for another QOS, or an operator raises the limit: sacctmgr show qos",
    ),
}

# What else only Slurm knows: the text and what would change it.
_LIMITS: Mapping[Cause, tuple[str, str]] = {
    Cause.PARTITION_LIMIT: (
        "it is outside what its partition allows",
        "ask for less time, memory or fewer nodes, or for another partition: scontrol show partition",
    ),
    Cause.LICENSES: (
        "too few of the licences it asks for are free",
        "jobs that hold them end: scontrol show licenses",
    ),
    Cause.RESERVATION: (
        "a reservation decides when it may start",
        "the reservation begins or ends: scontrol show reservation",
    ),
    Cause.IMPOSSIBLE: (
        "Slurm finds no nodes that could ever be enough for it",
        "ask for less or for other nodes; then: scontrol release",
    ),
}


def _slurm_limit(inquiry: Inquiry) -> Finding | None:
    """Repeat a limit that Slurm names and that nothing in the snapshot can show."""
    named = causes_named(inquiry.job.reason)
    if len(named) != 1:
        return None
    (cause,) = named
    evidence: dict[str, Evidence] = {"slurm_reason": inquiry.job.reason}
    if cause in _SHARED:
        whose, remedy = _SHARED[cause]
        if _concerns_one_job(inquiry.job.reason):
            text, remedy = (
                f"the job by itself is outside {whose}",
                "waiting does not help: ask for what the limit allows",
            )
        else:
            text = f"{whose} is reached"
        return Finding(cause=cause, text=text, evidence=evidence, remedies=(remedy,))
    seen = {Cause.PARTITION_LIMIT: _partition_limits, Cause.IMPOSSIBLE: impossible}
    if cause not in _LIMITS or (cause in seen and seen[cause](inquiry) is not None):
        return None
    text, remedy = _LIMITS[cause]
    return Finding(cause=cause, text=text, evidence=evidence, remedies=(remedy,))


def _concerns_one_job(reason: str) -> bool:
    """Whether the limit bounds each job by itself, as AssocMaxGRESPerJob and QOSMinGRES do."""
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
        text=f"{running} tasks of its array run, and no more than {array.max_running} may at a time",
        evidence={"array_tasks_running": running, "array_max_running": array.max_running},
        remedies=(
            "running tasks of the array end",
            f"the user: scontrol update JobId={array.array_job_id} ArrayTaskThrottle=...",
        ),
    )
