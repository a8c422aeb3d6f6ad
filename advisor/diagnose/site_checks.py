"""Checks what a site offers the advisor, whether fair share is charged for GPUs, and what each lack costs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from advisor.diagnose.survey import overview
from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.domain.gang import GpuScope
from advisor.domain.job import Sensitivity
from advisor.domain.releases import first_with
from advisor.domain.site import Billing, Partition
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import TopologyKind
from advisor.domain.units import MINUTE_S, duration, plural
from advisor.planning.levers import missing_for, need_of
from advisor.planning.placement import can_be_spread
from advisor.settings import Limits

_TOPOLOGY_COST: Mapping[TopologyKind, str] = {
    TopologyKind.BLOCK: "no pending job can be made to wait for one block: users ask at submit (--segment), or an "
    "operator makes a reservation",
    TopologyKind.FLAT: "gangs are held for few nodes only; topology/tree would let them wait for one leaf switch too",
    TopologyKind.OTHER: "gangs are held for few nodes only",
}
_FAIR_SHARE = "fair share"


class Status(StrEnum):
    """How a check came out; `unknown` where nothing could be read."""

    OK = "ok"
    LACKS = "lacks"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at: how it stands, and what it costs to lack it ("" where nothing is lacking)."""

    name: str
    status: Status
    text: str
    cost: str = ""


def site_checks(snapshot: Snapshot, limits: Limits) -> Iterator[Check]:
    """Check a site by its snapshot, lever by lever and parameter by parameter."""
    if not snapshot.config.slurm_version:
        yield Check(
            name="configuration", status=Status.UNKNOWN, text="not read", cost="nothing is known of what Slurm allows"
        )
    for lever in Lever:
        text = missing_for(lever, snapshot)
        cost = "" if text is None else need_of(lever).cost
        if lever is Lever.NICE and text is None and not limits.lifts_pass_others:
            cost = (
                f"guard.fairness is {limits.fairness}: jobs change places within each {limits.fairness} alone; "
                "`sadvise tune` prints what each fairness gains"
            )
        yield Check(
            name=f"lever {lever}",
            status=Status.OK if text is None else Status.LACKS,
            text=text or "usable",
            cost=cost,
        )
    yield _topology(snapshot)
    if snapshot.topology.kind is TopologyKind.TREE:
        yield _switch_wait(snapshot, limits)
    yield _soft_limit(snapshot)
    yield _priorities(snapshot)
    yield _gangs(snapshot)
    yield from _open_gangs(snapshot)
    yield from _reservations(snapshot)
    yield from _spreading(snapshot)
    yield from _cpus_beside_gpus(snapshot)
    yield _elastic(snapshot)
    yield _gpu_tres(snapshot)
    yield _gpu_use(snapshot)
    yield _visibility(snapshot)
    for text in snapshot.unread:
        yield Check(name="not read", status=Status.UNKNOWN, text=text, cost="advice leaves alone what depends on it")


def _topology(snapshot: Snapshot) -> Check:
    kind = snapshot.topology.kind
    leaves = kind is TopologyKind.TREE and len(snapshot.topology.leaves) > 1
    tiers = "few nodes and for one leaf switch" if leaves else "few nodes"
    return Check(
        name="topology",
        status=Status.LACKS if kind in _TOPOLOGY_COST else Status.OK,
        text=f"{kind}: gangs can wait for {tiers}",
        cost=_TOPOLOGY_COST.get(kind, ""),
    )


def _switch_wait(snapshot: Snapshot, limits: Limits) -> Check:
    """Compare what Slurm grants with the longest timer that the planner may set."""
    granted_s = snapshot.config.max_switch_wait_s
    longest_s = limits.max_added_delay_s // MINUTE_S * MINUTE_S
    enough = granted_s >= longest_s
    return Check(
        name="max_switch_wait",
        status=Status.OK if enough else Status.LACKS,
        text=f"Slurm waits up to {duration(granted_s)} for switches; timers may last up to {duration(longest_s)}",
        cost="" if enough else f"timers are cut to it; set SchedulerParameters=max_switch_wait={longest_s:.0f}",
    )


def _soft_limit(snapshot: Snapshot) -> Check:
    name = "time_min_as_soft_limit"
    if snapshot.config.takes_soft_limits:
        lasting = snapshot.config.traits.soft_limits_outlast_start
        first_lasting = first_with(lambda traits: traits.soft_limits_outlast_start)
        return Check(
            name=name,
            status=Status.OK,
            text="backfill can plan with forecasts below the time limit",
            cost="" if lasting else f"Slurm before {first_lasting} plans a job with its limit again once it runs",
        )
    return Check(
        name=name,
        status=Status.LACKS,
        text=f"not in SchedulerParameters; Slurm knows it from {first_with(lambda traits: traits.soft_limits)} on",
        cost="backfill plans with what users ask, not with forecasts",
    )


def _priorities(snapshot: Snapshot) -> Check:
    known = [job.priority for job in snapshot.jobs if job.is_pending and job.priority]
    name = "priorities"
    if not known:
        return Check(name=name, status=Status.UNKNOWN, text="no pending job has a priority to look at")
    if max(known) == 1 and len(known) > 1:
        return Check(
            name=name,
            status=Status.LACKS,
            text="every pending job has priority 1: the weights of priority/multifactor are 0",
            cost="nice has no room to move a job; set PriorityWeightAge and others",
        )
    return Check(name=name, status=Status.OK, text=f"pending jobs have priorities from {min(known)} to {max(known)}")


def _gangs(snapshot: Snapshot) -> Check:
    """Count the pending gangs for which a delay timer can be of use."""
    gangs = [job for job in snapshot.pending if can_be_spread(job.gang, job.gang.gpu_count or 0)]
    sensitive = sum(job.hints.sensitivity is Sensitivity.HIGH for job in gangs)
    text = f"{plural(len(gangs), 'pending gang')} can be spread over nodes; {sensitive} declare sensitivity=high"
    return Check(
        name="gangs",
        status=Status.OK,
        text=text if gangs else "no pending job can be spread over nodes, so that there is nothing to hold together",
    )


def _open_gangs(snapshot: Snapshot) -> Iterator[Check]:
    """Count the pending gangs that Slurm can spread over whatever is free, if there are any."""
    count = sum(
        job.gang.most_nodes is None
        and job.gang.scope in (GpuScope.JOB, GpuScope.TASK)
        and can_be_spread(replace(job.gang, nodes_max=None), job.gang.gpu_count or 0)
        and job.hints.sensitivity is not Sensitivity.LOW
        for job in snapshot.pending
    )
    if count:
        yield Check(
            name="open gangs",
            status=Status.LACKS,
            text=f"the node count of {plural(count, 'pending gang')} is open",
            cost="Slurm spreads them over what is free, and they run slower; pin_gangs of job_submit.lua holds them to "
            "the fewest nodes, `sadvise tune` prints what that gains",
        )


def _reservations(snapshot: Snapshot) -> Iterator[Check]:
    """Count the idle GPUs of the nodes that backfill keeps for pending jobs, if Slurm shows any.

    Slurm 22.05 shows nodes without any job alone.
    """
    planned = [node for node in snapshot.nodes if "PLANNED" in (node.state, *node.flags)]
    idle = sum(pool.idle for node in planned for pool in node.gpus)
    if not idle:
        return
    is_set = snapshot.config.reserves_after_s > 0.0 or snapshot.config.reserves_first > 0
    yield Check(
        name="reservations",
        status=Status.OK,
        text=f"{plural(idle, 'GPU')} idle now on {plural(len(planned), 'node')} that backfill keeps for pending jobs",
        cost=""
        if is_set
        else "jobs that would outlast the start of those stay out; with bf_job_part_count_reserve=1 in "
        "SchedulerParameters only the first job of each partition keeps nodes, with bf_min_age_reserve no younger one: "
        "`sadvise tune` prints what that gains, and who waits longer",
    )


def _spreading(snapshot: Snapshot) -> Iterator[Check]:
    """Find out whether Slurm gives small jobs the least loaded nodes."""
    if any(word.upper() == "CR_LLN" for word in snapshot.config.select_parameters):
        yield Check(
            name="small jobs",
            status=Status.LACKS,
            text="SelectTypeParameters has CR_LLN: jobs go to the least loaded nodes",
            cost="small jobs stand on all nodes, and gangs wait for whole ones; take it out, and set LLN=YES only for "
            "partitions without GPUs",
        )


def _cpus_beside_gpus(snapshot: Snapshot) -> Iterator[Check]:
    """Count the idle GPUs of nodes that have too few idle CPUs for them, if there are any."""
    idle = sum(gpus.idle.by_cpus for gpus in overview(snapshot).gpu_types if gpus.idle is not None)
    if idle:
        kept = "RestrictedCoresPerGPU of the nodes keeps cores for them"
        bounded = "MaxCPUsPerNode of partitions for jobs without GPUs leaves them some"
        yield Check(
            name="CPUs beside GPUs",
            status=Status.LACKS,
            text=f"{plural(idle, 'GPU')} idle on nodes without idle CPUs, or with too few for the pending jobs",
            cost=f"jobs with GPUs wait for CPUs; {kept if snapshot.config.traits.restricts_cores else bounded}",
        )


def _elastic(snapshot: Snapshot) -> Check:
    """Count the pending jobs that can be resized."""
    elastic = sum(job.hints.gpus is not None for job in snapshot.pending)
    text = f"{plural(elastic, 'pending job')} with a declared range"
    none = "no pending job declares a range (--comment='sadvise: gpus=2-8'), so that none is resized"
    return Check(name="sizes", status=Status.OK, text=text if elastic else none)


def _gpu_tres(snapshot: Snapshot) -> Check:
    counted = snapshot.config.accounting_tres
    if "gres/gpu" not in counted:
        return Check(
            name="AccountingStorageTRES",
            status=Status.LACKS,
            text="does not count gres/gpu",
            cost="allocated GPUs are worked out from requests; pyslurm does not show --gpus, so it is not used",
        )
    types = sorted({f"gres/gpu:{pool.gpu_type}" for node in snapshot.nodes for pool in node.gpus if pool.gpu_type})
    lacking = ",".join(tres for tres in types if tres.lower() not in counted)
    return Check(
        name="AccountingStorageTRES",
        status=Status.OK,
        text=f"counts gres/gpu, not {lacking}" if lacking else "counts gres/gpu and each of its types",
        cost=f"reading with pyslurm takes AccountingStorageTRES=gres/gpu,{','.join(types)}" if lacking else "",
    )


def _gpu_use(snapshot: Snapshot) -> Check:
    unknown = sum(1 for node in snapshot.nodes if any(pool.used is None for pool in node.gpus))
    return Check(
        name="GPUs in use",
        status=Status.UNKNOWN if unknown else Status.OK,
        text=f"not shown by this reader on {plural(unknown, 'node')}" if unknown else "known on every node",
        cost="idle and used GPUs cannot be distinguished; try --source text" if unknown else "",
    )


def _visibility(snapshot: Snapshot) -> Check:
    hidden = [word for word in snapshot.config.private_data if word in {"jobs", "nodes", "partitions"}]
    if snapshot.config.hides_powered_down and not hidden:
        return Check(
            name="PrivateData",
            status=Status.LACKS,
            text="hides nodes that are powered down: SuspendTime is set, and PrivateData has no cloud",
            cost="what fits on no other node is not judged; set PrivateData=cloud, with the words that it has",
        )
    return Check(
        name="PrivateData",
        status=Status.LACKS if hidden else Status.OK,
        text=f"hides {', '.join(hidden)} from ordinary users" if hidden else "hides nothing the advisor needs",
        cost="run as SlurmUser, root or an Operator, or the queue looks emptier than it is" if hidden else "",
    )


def billing_checks(snapshot: Snapshot, billings: Sequence[Billing]) -> Iterator[Check]:
    """Check the partitions with GPUs, where fair share orders jobs."""
    config = snapshot.config
    if not config.priority_weights.get("fair_share"):
        text = "it does not order jobs: PriorityWeightFairshare is 0, or PriorityType is not priority/multifactor"
        yield Check(name=_FAIR_SHARE, status=Status.OK, text=text)
        return
    is_counted = "gres/gpu" in config.accounting_tres
    lacking = False
    for billing in billings:
        partition = snapshot.partitions_by_name.get(billing.partition)
        price = None if partition is None else _cpus_per_gpu(snapshot, partition)
        if price is None or not set(billing.gpu_tres).isdisjoint(config.accounting_tres):
            continue
        lacking = True
        weights = billing.weights or "CPU=1.0"
        lines = [
            *([] if is_counted else ["AccountingStorageTRES=gres/gpu"]),
            *([] if "gres/gpu" in billing.gpu_tres else [_line(billing.partition, f"{weights},GRES/gpu={price:.1f}")]),
        ]
        yield Check(
            name=f"{_FAIR_SHARE} {billing.partition}",
            status=Status.LACKS,
            text=_finding(billing),
            cost=f"users pay nothing for the GPUs that they hold; set in slurm.conf: {' and '.join(lines)}",
        )
    if not lacking:
        counts = "the largest share" if "MAX_TRES" in config.priority_flags else "the sum"
        yield Check(
            name=_FAIR_SHARE, status=Status.OK, text=f"it is charged for GPUs; {counts} of what a job holds counts"
        )


def _finding(billing: Billing) -> str:
    if billing.gpu_tres:
        return f"jobs are not billed for GPUs: AccountingStorageTRES does not count {','.join(billing.gpu_tres)}"
    if billing.weights:
        return f"jobs are not billed for GPUs: TRESBillingWeights={billing.weights}"
    return "jobs are billed for their CPUs alone: there are no TRESBillingWeights"


def _line(partition: str, weights: str) -> str:
    return f'PartitionName={partition} TRESBillingWeights="{weights}"'


def _cpus_per_gpu(snapshot: Snapshot, partition: Partition) -> float | None:
    """Return the CPUs of the partition's GPU nodes for each of their GPUs, at least 1; None where it has no GPUs.

    With this weight all GPUs of a node cost what all its CPUs do.
    """
    names = set(partition.nodes)
    nodes = [node for node in snapshot.nodes if node.name in names and node.gpus]
    gpus = sum(pool.total for node in nodes for pool in node.gpus)
    return max(1.0, sum(node.cpus for node in nodes) / gpus) if gpus else None
