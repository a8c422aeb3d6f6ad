"""Diagnoses from a snapshot why one job is not starting."""

from collections.abc import Iterator

import numpy as np

from advisor.diagnose.gates import gates
from advisor.diagnose.inquiry import Ahead, Inquiry, ahead_of
from advisor.diagnose.reserved_nodes import blocking_reservation
from advisor.diagnose.shortage import shortages
from advisor.domain.diagnosis import (
    CONTENTION,
    RESOURCES,
    Cause,
    Diagnosis,
    Disagreement,
    Finding,
    Variant,
    causes_named,
    gives_no_reason,
)
from advisor.domain.job import Job
from advisor.domain.particulars import NOTHING_ASKED, Particulars, PriorityFactors
from advisor.domain.plan import Evidence
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier, TopologyKind
from advisor.domain.units import plural
from advisor.features.capacity import Doubt
from advisor.features.nodes import NodeTable, node_table

_DOUBTS = {
    Doubt.FEATURES: "which nodes have the features it asks for",
    Doubt.SHARES: "where parts of GPUs (mps, shard) are free",
    Doubt.SOCKETS: "how many sockets nodes have; whole nodes were assumed",
    Doubt.MEMORY: "how much memory it needs on each node; none was assumed",
    Doubt.NODE_COUNT: "whether it may have more nodes than Slurm shows or than it has tasks, which it needs now",
    Doubt.NODE_LIMIT: "whether it asks for as many nodes as it has tasks, which its partition's MaxNodes would bar",
    Doubt.UNEQUAL_NODES: "whether Slurm leaves a GPU for each of its nodes, as those with room differ",
    Doubt.GPUS_UNKNOWN: "how many GPUs it asks for",
    Doubt.PARTITION_UNKNOWN: "all of its partitions",
}


def diagnose(
    snapshot: Snapshot, job_id: int, *, table: NodeTable | None = None, particulars: Particulars = NOTHING_ASKED
) -> Diagnosis:
    """Return the diagnosis of a job that is not starting.

    `table` is its snapshot's node table if already built; `particulars` is what else was asked about the job.
    """
    job = snapshot.jobs_by_id.get(job_id)
    if job is None:
        return _absent(snapshot, job_id)
    if not job.is_pending:
        return _started(snapshot, job)
    inquiry = Inquiry.of(snapshot, table or node_table(snapshot), job, particulars)
    ahead = ahead_of(inquiry)
    findings = [*gates(inquiry), *_contention(inquiry, ahead)]
    disagreement = _disagreement(inquiry, findings)
    if not findings or (causes_named(job.reason).isdisjoint(finding.cause for finding in findings) and disagreement):
        findings.append(_last_word(inquiry, disagreement))
    return Diagnosis(
        job_id=job_id,
        job=job,
        taken_at=snapshot.taken_at,
        slurm_reason=job.reason,
        first=findings[0],
        further=tuple(findings[1:]),
        tier_now=_tier_now(inquiry),
        disagreement=disagreement,
        share=particulars.share,
        unread=(
            *snapshot.unread,
            *_unread(inquiry, ahead, {finding.cause for finding in findings}),
            *particulars.unread,
        ),
    )


def _absent(snapshot: Snapshot, job_id: int) -> Diagnosis:
    return Diagnosis(
        job_id=job_id,
        job=None,
        taken_at=snapshot.taken_at,
        slurm_reason="",
        # One that could not be read may well be in the queue.
        first=Finding(cause=Cause.UNKNOWN if snapshot.leaves_out(job_id) else Cause.ABSENT),
        unread=(*snapshot.unread, *_hidden(snapshot)),
    )


def _started(snapshot: Snapshot, job: Job) -> Diagnosis:
    evidence: dict[str, Evidence] = {"state": str(job.state)}
    if job.start_time is not None:
        evidence["start_time"] = job.start_time
        evidence["queueing_delay_s"] = job.queueing_delay_s(job.start_time)
    return Diagnosis(
        job_id=job.job_id,
        job=job,
        taken_at=snapshot.taken_at,
        slurm_reason=job.reason,
        first=Finding(cause=Cause.STARTED, evidence=evidence),
        unread=snapshot.unread,
    )


def _contention(inquiry: Inquiry, ahead: Ahead) -> list[Finding]:
    """Find the resources that the job lacks and the jobs ahead of it; Slurm's reason decides which comes first."""
    if inquiry.job.reservation:
        # It competes only inside its reservation, which is not in the snapshot.
        return []
    blocking = blocking_reservation(inquiry)
    short = shortages(inquiry) if blocking is None else [blocking]
    before = _priority(inquiry, ahead)
    if before is None:
        return [*short, *_switches(inquiry)]
    if blocking is not None or causes_named(inquiry.job.reason) == RESOURCES:
        return [*short, *_switches(inquiry), before]
    lasting = [finding for finding in short[:1] if finding.cause is Cause.NODES_UNAVAILABLE]
    return [*lasting, before, *short[len(lasting) :], *_switches(inquiry)]


def _priority(inquiry: Inquiry, ahead: Ahead) -> Finding | None:
    if not ahead.jobs:
        return None
    job = inquiry.job
    evidence: dict[str, Evidence] = {
        "jobs_ahead": ahead.jobs,
        "own_jobs_ahead": ahead.own_jobs,
        "users_ahead": ahead.users,
        "gpu_jobs_ahead": ahead.gpu_jobs,
        "gpus_asked_ahead": ahead.gpus,
        "priority": job.priority or 0,
        "highest_priority_ahead": ahead.highest_priority,
        "queueing_delay_s": job.queueing_delay_s(inquiry.snapshot.taken_at),
    }
    if job.start_time is not None:
        evidence["slurm_expects_start_time"] = job.start_time
    evidence |= _parts_of_priority(inquiry.particulars.factors)
    return Finding(cause=Cause.PRIORITY, evidence=evidence)


def _parts_of_priority(factors: PriorityFactors | None) -> dict[str, Evidence]:
    if factors is None:
        return {}
    parts = {
        "site": factors.site,
        "age": factors.age,
        "association": factors.association,
        "fair_share": factors.fair_share,
        "job_size": factors.job_size,
        "partition": factors.partition,
        "qos": factors.qos,
        "tres": factors.tres,
        "nice": factors.nice,
    }
    return {f"priority_{name}": value for name, value in parts.items() if value is not None}


def _switches(inquiry: Inquiry) -> Iterator[Finding]:
    """Find whether the job waits for one leaf switch although it fits on several."""
    wish, tier = inquiry.gang.switches, inquiry.fit.tier_now
    if wish is None or wish.count != 1 or inquiry.snapshot.topology.kind is not TopologyKind.TREE:
        return
    wait_s = min(wish.max_wait_s, inquiry.snapshot.config.max_switch_wait_s)
    delay_s = inquiry.job.queueing_delay_s(inquiry.snapshot.taken_at)
    if tier is None or tier <= LocalityTier.LEAF or delay_s > wait_s:
        return
    yield Finding(
        cause=Cause.SWITCHES,
        evidence={"switches": wish.count, "max_wait_s": wait_s, "queueing_delay_s": delay_s},
    )


def _disagreement(inquiry: Inquiry, findings: list[Finding]) -> Disagreement | None:
    """Return how our findings disagree with the reason that Slurm names, None where they do not."""
    named = causes_named(inquiry.job.reason)
    if named == {Cause.IMPOSSIBLE} and inquiry.fit.fits_ever:
        return Disagreement.POSSIBLE
    if not named or Cause.UNKNOWN in named or not named.isdisjoint(finding.cause for finding in findings):
        return None
    if any(finding.variant is Variant.BLOCKING for finding in findings):
        # Slurm calls it a lack of resources, or of priority, when a reservation is in the way.
        return None
    if named <= CONTENTION and (inquiry.job.reservation or not inquiry.gang.gpus_known):
        return None
    return Disagreement.NOT_BORNE_OUT


def _tier_now(inquiry: Inquiry) -> LocalityTier | None:
    """Return the tier at which the job fits now.

    None inside a reservation, which is not in the snapshot, where something that is not counted could bar it, and for
    a job whose request Slurm has not checked.
    """
    if inquiry.job.reservation or inquiry.fit.restricted or _is_unchecked(inquiry.job):
        return None
    return inquiry.fit.tier_now


def _is_unchecked(job: Job) -> bool:
    """Whether Slurm may refuse the request of a job: it checks that of one submitted with --hold at its release."""
    return job.held and job.eligible_time is None


def _last_word(inquiry: Inquiry, disagreement: Disagreement | None) -> Finding:
    """Return Slurm's reason as a finding, for a job where we find no cause or another one."""
    named = causes_named(inquiry.job.reason)
    evidence: dict[str, Evidence] = {"slurm_reason": inquiry.job.reason}
    if disagreement is not None:
        return Finding(cause=_named_first(named), variant=Variant.DISPUTED, evidence=evidence)
    if named:
        return Finding(cause=Cause.UNKNOWN, variant=Variant.NAMED, evidence=evidence)
    cause = Cause.UNKNOWN if _tier_now(inquiry) is None else Cause.NOT_TRIED
    return Finding(cause=cause, evidence=evidence)


def _named_first(named: frozenset[Cause]) -> Cause:
    if named == RESOURCES:
        return Cause.UNKNOWN
    return next(iter(named)) if len(named) == 1 else Cause.NODES_UNAVAILABLE


def _unread(inquiry: Inquiry, ahead: Ahead, causes: set[Cause]) -> Iterator[str]:
    """Yield descriptions of the facts about this job that could not be read."""
    if gives_no_reason(inquiry.job.reason):
        yield "Slurm's reason: it gives none before it first tries a job, and after each change of one"
    yield from _doubted(inquiry)
    unknown = ~inquiry.table.gpu_use_known.all(axis=1) & inquiry.nodes
    if unknown.any():
        yield f"how many GPUs are in use on {plural(int(unknown.sum()), 'node')} of its partitions; all were assumed"
    if inquiry.job.priority is None:
        yield "its priority, and so who comes before it"
    elif ahead.unknown_priorities:
        yield f"the priority of {plural(ahead.unknown_priorities, 'other pending job')}"
    if Cause.PRIORITY in causes and inquiry.particulars == NOTHING_ASKED:
        yield "the parts of its priority (sprio)"
    if inquiry.job.reservation and inquiry.particulars.reservations is None:
        yield "the nodes and times of its reservation"
    if Cause.SWITCHES in causes:
        yield "when Slurm's wait for one leaf switch began"
    if causes & {Cause.GPUS, Cause.FRAGMENTATION, Cause.CPUS_OR_MEMORY} and _ends_unknown(inquiry):
        yield "when all of the running jobs on its nodes end at the latest"
    if inquiry.job.het is not None:
        yield "whether the other components of its heterogeneous job fit at the same time"
    yield from _hidden(inquiry.snapshot)


def _doubted(inquiry: Inquiry) -> Iterator[str]:
    doubts = inquiry.fit.doubts
    yield from (_DOUBTS[doubt] for doubt in doubts if doubt in _DOUBTS)
    if Doubt.OPTIONS in doubts:
        yield f"which nodes {', '.join(inquiry.gang.uncounted)} bar; none was assumed"
    if _is_unchecked(inquiry.job):
        yield "whether its request can be met: Slurm checks that of a job submitted with --hold at its release"


def _ends_unknown(inquiry: Inquiry) -> bool:
    names = {inquiry.table.names[row] for row in np.flatnonzero(inquiry.nodes)}
    return any(
        job.allocation is not None and not job.is_pending and job.end_time is None and names & set(job.allocation.nodes)
        for job in inquiry.snapshot.jobs
    )


def _hidden(snapshot: Snapshot) -> Iterator[str]:
    if "jobs" in snapshot.config.private_data:
        yield "jobs of other users, which PrivateData may hide"
