"""Why one job is not starting, from a snapshot alone."""

from collections.abc import Iterator

import numpy as np

from advisor.domain.diagnosis import Cause, Diagnosis, Finding, PriorityFactors
from advisor.domain.facts import Evidence
from advisor.domain.job import Job, JobState
from advisor.domain.slurm_reasons import CONTENTION, RESOURCES, causes_named, gives_no_reason
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier, TopologyKind
from advisor.domain.units import duration, plural
from advisor.features.capacity import Doubt
from advisor.features.nodes import NodeTable, node_table
from advisor.planning.gates import gates
from advisor.planning.inquiry import Inquiry
from advisor.planning.queue_position import Ahead, ahead_of
from advisor.planning.shortage import shortages

_PLACES = {
    LocalityTier.NODE: "on one node",
    LocalityTier.LEAF: "under one leaf switch",
    LocalityTier.SPINE: "on several leaf switches",
    LocalityTier.CLUSTER: "on several nodes",
}

_DOUBTS = {
    Doubt.FEATURES: "which nodes have the features it asks for",
    Doubt.SHARES: "where parts of GPUs (mps, shard) are free",
    Doubt.SOCKETS: "how many sockets nodes have; whole nodes were assumed",
    Doubt.MEMORY: "how much memory it needs on each node; none was assumed",
    Doubt.GPUS_UNKNOWN: "how many GPUs it asks for",
    Doubt.PARTITION_UNKNOWN: "all of its partitions",
}


def diagnose(
    snapshot: Snapshot, job_id: int, *, table: NodeTable | None = None, factors: PriorityFactors | None = None
) -> Diagnosis:
    """Say why a job is not starting; `table` saves building the snapshot's own once more."""
    job = snapshot.jobs_by_id.get(job_id)
    if job is None:
        return _absent(snapshot, job_id)
    if not job.is_pending:
        return _started(snapshot, job)
    inquiry = Inquiry.of(snapshot, table or node_table(snapshot), job, factors)
    ahead = ahead_of(inquiry)
    findings = [*gates(inquiry), *_contention(inquiry, ahead)]
    disagreement = _disagreement(inquiry, findings)
    if not findings or (causes_named(job.reason).isdisjoint(finding.cause for finding in findings) and disagreement):
        findings.append(_last_word(inquiry, disagreement))
    return Diagnosis(
        job_id=job_id,
        slurm_reason=job.reason,
        first=findings[0],
        further=tuple(findings[1:]),
        disagreement=disagreement,
        unread=(*snapshot.unread, *_unread(inquiry, ahead, {finding.cause for finding in findings})),
    )


def _absent(snapshot: Snapshot, job_id: int) -> Diagnosis:
    text = f"job {job_id} is not in the queue: it has ended, or is hidden from this reader"
    first = Finding(cause=Cause.ABSENT, text=text, remedies=(f"see whether it ended: sacct -j {job_id}",))
    return Diagnosis(job_id=job_id, slurm_reason="", first=first, unread=(*snapshot.unread, *_hidden(snapshot)))


def _started(snapshot: Snapshot, job: Job) -> Diagnosis:
    evidence: dict[str, Evidence] = {"state": str(job.state)}
    if job.start_time is not None:
        evidence["start_time"] = job.start_time
        evidence["queueing_delay_s"] = round(job.queueing_delay_s(job.start_time), 3)
    text = "it is pending no more" if job.state is JobState.OTHER else "it has started already"
    first = Finding(cause=Cause.STARTED, text=text, evidence=evidence)
    return Diagnosis(job_id=job.job_id, slurm_reason=job.reason, first=first, unread=snapshot.unread)


def _contention(inquiry: Inquiry, ahead: Ahead) -> list[Finding]:
    """Find what it competes for and with whom; Slurm's own word decides which of the two binds first."""
    if inquiry.job.reservation:
        # It competes inside its reservation only, of which the snapshot knows nothing.
        return []
    short = shortages(inquiry)
    before = _priority(inquiry, ahead)
    if before is None:
        return [*short, *_switches(inquiry)]
    if causes_named(inquiry.job.reason) == RESOURCES:
        return [*short, *_switches(inquiry), before]
    lasting = [finding for finding in short[:1] if finding.cause is Cause.NODES_UNAVAILABLE]
    return [*lasting, before, *short[len(lasting) :], *_switches(inquiry)]


def _priority(inquiry: Inquiry, ahead: Ahead) -> Finding | None:
    if not ahead.jobs:
        return None
    job, tier = inquiry.job, inquiry.fit.tier_now
    evidence: dict[str, Evidence] = {
        "jobs_ahead": ahead.jobs,
        "gpu_jobs_ahead": ahead.gpu_jobs,
        "gpus_asked_ahead": ahead.gpus,
        "priority": job.priority or 0,
        "highest_priority_ahead": ahead.highest_priority,
        "queueing_delay_s": round(job.queueing_delay_s(inquiry.snapshot.taken_at), 3),
    }
    if job.start_time is not None:
        evidence["slurm_expects_start_time"] = job.start_time
    evidence |= _parts_of_priority(inquiry.factors)
    text = f"{plural(ahead.jobs, 'pending job')} on the same nodes {'comes' if ahead.jobs == 1 else 'come'} before it"
    remedies = ["jobs ahead start or leave the queue"]
    if tier is not None:
        text += f"; by itself it would fit now {_PLACES[tier]}"
        remedies.append("a shorter time limit (--time) makes it easier for backfill to start it between the others")
    if job.nice > 0:
        remedies.append(f"its nice of {job.nice} lowers its priority: scontrol update JobId={job.job_id} Nice=0")
    return Finding(cause=Cause.PRIORITY, text=text, evidence=evidence, remedies=tuple(remedies))


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
    """Find out that the job waits for one leaf switch although it fits on several."""
    wish, tier = inquiry.gang.switches, inquiry.fit.tier_now
    if wish is None or wish.count != 1 or inquiry.snapshot.topology.kind is not TopologyKind.TREE:
        return
    wait_s = min(wish.max_wait_s, inquiry.snapshot.config.max_switch_wait_s)
    delay_s = inquiry.job.queueing_delay_s(inquiry.snapshot.taken_at)
    if tier is None or tier <= LocalityTier.LEAF or delay_s > wait_s:
        return
    yield Finding(
        cause=Cause.SWITCHES,
        text=f"it fits now {_PLACES[tier]}, but asks Slurm to wait up to {duration(wait_s)} for one leaf switch",
        evidence={"switches": wish.count, "max_wait_s": wait_s, "queueing_delay_s": round(delay_s, 3)},
        remedies=(
            "the wait ends by itself",
            f"the user: scontrol update JobId={inquiry.job.job_id} Switches=0 to take what there is",
        ),
    )


def _disagreement(inquiry: Inquiry, findings: list[Finding]) -> str | None:
    """Say where Slurm names a cause that our own count does not bear out, as far as it could tell."""
    named = causes_named(inquiry.job.reason)
    if named == {Cause.IMPOSSIBLE} and inquiry.fit.fits_ever:
        return "Slurm finds no nodes that could ever be enough for it; our count finds some"
    if not named or Cause.UNKNOWN in named or not named.isdisjoint(finding.cause for finding in findings):
        return None
    if named <= CONTENTION and (inquiry.job.reservation or not inquiry.gang.gpus_known):
        return None
    ours = " and ".join(finding.cause.replace("_", " ") for finding in findings) or "nothing in its way"
    return f"Slurm names a reason that the snapshot does not bear out: our count finds {ours}{_could_start(inquiry)}"


def _could_start(inquiry: Inquiry) -> str:
    tier = inquiry.fit.tier_now
    return "" if tier is None or inquiry.job.reservation else f"; by itself the job fits now {_PLACES[tier]}"


def _last_word(inquiry: Inquiry, disagreement: str | None) -> Finding:
    """Repeat what Slurm says where our own count finds nothing, or something else."""
    named = causes_named(inquiry.job.reason)
    evidence: dict[str, Evidence] = {"slurm_reason": inquiry.job.reason}
    if disagreement is not None:
        text = "Slurm gives this reason; the snapshot does not bear it out"
        return Finding(cause=_named_first(named), text=text, evidence=evidence)
    if named:
        return Finding(cause=Cause.UNKNOWN, text="Slurm gives a reason that cannot be judged here", evidence=evidence)
    if not _could_start(inquiry):
        return Finding(cause=Cause.UNKNOWN, text="what stands in its way could not be read", evidence=evidence)
    return Finding(
        cause=Cause.NOT_TRIED,
        text=f"nothing is seen in its way, and Slurm has not said that it tried it{_could_start(inquiry)}",
        evidence=evidence,
        remedies=("Slurm's next pass over the queue",),
    )


def _named_first(named: frozenset[Cause]) -> Cause:
    if named == RESOURCES:
        return Cause.UNKNOWN
    return next(iter(named)) if len(named) == 1 else Cause.NODES_UNAVAILABLE


def _unread(inquiry: Inquiry, ahead: Ahead, causes: set[Cause]) -> Iterator[str]:
    """Say in plain words what could not be read about this job and so was not judged."""
    if gives_no_reason(inquiry.job.reason):
        yield "Slurm's reason: it gives none before it first tries a job, and after each change of one"
    yield from (_DOUBTS[doubt] for doubt in inquiry.fit.doubts)
    unknown = ~inquiry.table.gpu_use_known.all(axis=1) & inquiry.nodes
    if unknown.any():
        yield f"how many GPUs are in use on {plural(int(unknown.sum()), 'node')} of its partitions; all were assumed"
    if inquiry.job.priority is None:
        yield "its priority, and so who comes before it"
    elif ahead.unknown_priorities:
        yield f"the priority of {plural(ahead.unknown_priorities, 'other pending job')}"
    if Cause.PRIORITY in causes and inquiry.factors is None:
        yield "the parts of its priority (sprio)"
    if inquiry.job.reservation:
        yield "the nodes and times of its reservation"
    if Cause.SWITCHES in causes:
        yield "when Slurm's wait for one leaf switch began"
    if causes & {Cause.GPUS, Cause.FRAGMENTATION, Cause.CPUS_OR_MEMORY} and _ends_unknown(inquiry):
        yield "when all of the running jobs on its nodes end at the latest"
    if inquiry.job.het is not None:
        yield "whether the other components of its heterogeneous job fit at the same time"
    yield from _hidden(inquiry.snapshot)


def _ends_unknown(inquiry: Inquiry) -> bool:
    names = {inquiry.table.names[row] for row in np.flatnonzero(inquiry.nodes)}
    return any(
        job.allocation is not None and not job.is_pending and job.end_time is None and names & set(job.allocation.nodes)
        for job in inquiry.snapshot.jobs
    )


def _hidden(snapshot: Snapshot) -> Iterator[str]:
    if "jobs" in snapshot.config.private_data:
        yield "jobs of other users, which PrivateData may hide"
