"""Finds what keeps a gang from fitting now: GPUs, their arrangement, CPUs, memory, nodes out of service."""

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from advisor.diagnose.alternatives import alternatives
from advisor.diagnose.inquiry import Inquiry
from advisor.domain.diagnosis import Alternative, Cause, Finding, Variant
from advisor.domain.gang import MOST, GpuCount
from advisor.domain.node import NodeService
from advisor.domain.plan import Evidence
from advisor.features.capacity import asks_beyond_nodes
from advisor.features.nodes import Flags, bounds, gpus_of, rows_of
from advisor.features.offers import chooses_among_required
from advisor.planning.earliest import earliest_by_limits

# More CPUs than any node has or any job asks for.
_PLENTY = 1_000_000
_NODES_NAMED = 8


def shortages(inquiry: Inquiry) -> list[Finding]:
    """Find what keeps the gang from fitting now, most binding first; nothing where it fits, or can never.

    Nodes that are not shown could hold what fits on no other.
    """
    if inquiry.fit.fits_now or not inquiry.gang.gpus_known or not _may_start(inquiry):
        return []
    if not inquiry.fit.fits_ever:
        return [_hidden(inquiry)] if inquiry.hides_nodes else []
    table = inquiry.table
    emptied = inquiry.emptied
    wanting = _wanting(inquiry)
    if wanting.cause is Cause.REQUIRED_NODES:
        return [wanting]
    comes = bool(inquiry.coming.any())
    with_coming = table.usable | inquiry.coming
    all_back = with_coming | inquiry.out_of_service
    if not inquiry.fits_now_with(emptied):
        if comes and inquiry.fits_now_with(replace(emptied, usable=with_coming)):
            return [_unavailable(inquiry, inquiry.coming, Variant.COMING), wanting]
        if inquiry.fits_now_with(replace(emptied, usable=all_back)):
            return [_unavailable(inquiry, inquiry.out_of_service, Variant.NEEDED_AT_ALL), wanting]
    if comes and inquiry.fits_now_with(replace(table, usable=with_coming)):
        return [wanting, _unavailable(inquiry, inquiry.coming, Variant.COMING)]
    if inquiry.fits_now_with(replace(table, usable=all_back)):
        return [wanting, _unavailable(inquiry, inquiry.out_of_service, Variant.NEEDED_NOW)]
    return [wanting]


def _hidden(inquiry: Inquiry) -> Finding:
    """Return that nodes which are not shown could hold the gang, and whether Slurm boots them when a job needs them."""
    evidence: dict[str, Evidence] = {"powered_down": int(inquiry.snapshot.config.hides_powered_down)}
    if inquiry.job.start_time is not None:
        evidence["slurm_expects_start_time"] = inquiry.job.start_time
    return Finding(cause=Cause.NODES_UNAVAILABLE, variant=Variant.HIDDEN, evidence=evidence)


def _required_nodes(inquiry: Inquiry, other: tuple[Alternative, ...]) -> Finding:
    """Return the nodes that the job insists on, and how many GPUs are idle there."""
    rows = rows_of(inquiry.table, inquiry.gang.required_nodes)
    asked = np.zeros_like(inquiry.table.usable)
    asked[rows] = True
    closed, coming = asked & inquiry.out_of_service, asked & inquiry.coming
    gpu_type = inquiry.gang.gpu_type
    evidence: dict[str, Evidence] = {"nodes": ",".join(inquiry.gang.required_nodes[:_NODES_NAMED])}
    if closed.any():
        evidence["nodes_out_of_service"] = ",".join(_names(inquiry, closed))
        evidence |= _about(inquiry, list(_names(inquiry, closed)))
    elif coming.any():
        evidence["nodes_coming"] = ",".join(_names(inquiry, coming))
        evidence |= _about(inquiry, list(_names(inquiry, coming)))
    evidence["gpus_on_them"] = int(gpus_of(inquiry.table.gpu_types, inquiry.table.gpus_total, gpu_type)[asked].sum())
    evidence["gpus_idle_on_them"] = int(inquiry.most_idle(gpu_type)[asked].sum())
    return Finding(cause=Cause.REQUIRED_NODES, evidence=evidence | _by_limits(inquiry), alternatives=other)


def _may_start(inquiry: Inquiry) -> bool:
    return any(partition.is_up for partition in inquiry.partitions)


def _wanting(inquiry: Inquiry) -> Finding:
    """Name what is missing for the gang to fit now."""
    evidence = _by_limits(inquiry)
    lacking, other = _other_than_gpus(inquiry), tuple(alternatives(inquiry))
    if lacking is not None:
        return Finding(
            cause=Cause.CPUS_OR_MEMORY,
            variant=lacking,
            evidence=_idle_beside_gpus(inquiry) | evidence,
            alternatives=other,
        )
    if inquiry.gang.wants_gpus and inquiry.gang.required_nodes and not chooses_among_required(inquiry.gang):
        return _required_nodes(inquiry, other)
    short = _too_few(inquiry)
    if short is not None:
        asked, idle, total = short
        counts = _counts(asked, idle, total) | {"gpus_short": asked.count - idle}
        return Finding(cause=Cause.GPUS, evidence=counts | evidence, alternatives=other)
    return Finding(cause=Cause.FRAGMENTATION, evidence=_spread(inquiry) | evidence, alternatives=other)


def _other_than_gpus(inquiry: Inquiry) -> Variant | None:
    """Return what the gang lacks beside idle GPUs, None if it is the GPUs that it lacks."""
    table = inquiry.table
    if not inquiry.gang.wants_gpus:
        return Variant.EMPTY_NODES if inquiry.gang.exclusive else Variant.CPUS_OR_MEMORY
    if inquiry.gang.exclusive:
        return None
    cpus = np.full_like(table.cpus_idle, _PLENTY)
    without_cpus = replace(table, cpus_idle=cpus, cpus_total=cpus)
    without_memory = replace(table, memory_idle_mib=table.memory_total_mib)
    without_both = replace(without_cpus, memory_idle_mib=table.memory_total_mib)
    tables = {
        Variant.CPUS_BESIDE_GPUS: without_cpus,
        Variant.MEMORY_BESIDE_GPUS: without_memory,
        Variant.BOTH_BESIDE_GPUS: without_both,
    }
    return next((variant for variant, relaxed in tables.items() if inquiry.fits_now_with(relaxed)), None)


def _asked(inquiry: Inquiry) -> tuple[GpuCount, ...]:
    """Return the GPUs the gang needs in all, as bounds; those of one socket where that is all the request tells."""
    by_type = inquiry.gang.gpus_by_type
    if by_type is None:
        return bounds(inquiry.gang.per_socket)
    return bounds(tuple(GpuCount(gpu_type=gpu_type, count=min(count, MOST)) for gpu_type, count in by_type.items()))


def _too_few(inquiry: Inquiry) -> tuple[GpuCount, int, int] | None:
    """Find a count of which too few are idle in any one partition: asked, idle and in all, None for none."""
    for asked in _asked(inquiry):
        idle = int(inquiry.most_idle(asked.gpu_type).sum())
        if idle < asked.count:
            total = gpus_of(inquiry.table.gpu_types, inquiry.table.gpus_total, asked.gpu_type)
            return asked, idle, int(np.where(inquiry.members, total, 0).sum(axis=1).max())
    return None


def _counts(asked: GpuCount, idle: int, total: int) -> dict[str, Evidence]:
    named: dict[str, Evidence] = {"gpu_type": asked.gpu_type} if asked.gpu_type else {}
    return named | {"gpus_asked": asked.count, "gpus_idle": idle, "gpus_in_partition": total}


def _spread(inquiry: Inquiry) -> dict[str, Evidence]:
    """Return how the idle GPUs the gang could use are spread."""
    idle = inquiry.most_idle(inquiry.gang.gpu_type)
    known = inquiry.table.leaf >= 0
    evidence: dict[str, Evidence] = {
        "gpus_idle": int(idle.sum()),
        "nodes_with_idle_gpus": int((idle > 0).sum()),
        "most_idle_on_one_node": int(idle.max(initial=0)),
    }
    component = inquiry.table.component
    switches = set() if component is None else set(component[inquiry.nodes].tolist())
    if inquiry.gang.nodes_min > 1 and len(switches) > 1:
        evidence["unjoined_switches"] = len(switches)
    if known.any():
        evidence["most_idle_under_one_leaf"] = int(np.bincount(inquiry.table.leaf[known], weights=idle[known]).max())
    return evidence


def _idle_beside_gpus(inquiry: Inquiry) -> dict[str, Evidence]:
    """Return what is idle on the nodes whose GPUs the gang could use, beside what it asks for."""
    nodes = (
        inquiry.most_idle(inquiry.gang.gpu_type) > 0
        if inquiry.gang.wants_gpus
        else inquiry.nodes & inquiry.table.usable
    )
    evidence: dict[str, Evidence] = {
        "cpus_asked": inquiry.gang.cpus,
        "most_idle_cpus_there": int(inquiry.table.cpus_idle[nodes].max(initial=0)),
    }
    if inquiry.gang.memory_mib_per_node is not None:
        evidence["memory_mib_asked_per_node"] = inquiry.gang.memory_mib_per_node
        evidence["most_idle_memory_mib_there"] = int(inquiry.table.memory_idle_mib[nodes].max(initial=0))
    if inquiry.gang.wants_gpus:
        evidence["nodes_with_idle_gpus"] = int(nodes.sum())
    most = [partition.max_cpus_per_node for partition in inquiry.partitions]
    if len(most) == 1 and most[0] is not None:
        evidence["max_cpus_per_node"] = most[0]
    return evidence


def _by_limits(inquiry: Inquiry) -> dict[str, Evidence]:
    """Return when the gang fits at the latest by the limits of running jobs, which is not before its begin time.

    Empty where that is unknown, as it is for a job that depends on others.
    """
    job = inquiry.job
    time = None if job.dependency else earliest_by_limits(inquiry.snapshot, inquiry.table, job)
    evidence: dict[str, Evidence] = {} if time is None else {"fits_by_limits_time": max(time, job.eligible_time or 0.0)}
    if time is not None and (yielding := _giving_way(inquiry)):
        evidence["jobs_that_give_way"] = yielding
    return evidence


def _giving_way(inquiry: Inquiry) -> int:
    """Count the running jobs on nodes of the job that Slurm can preempt for it: those of partitions of a lower tier."""
    snapshot, config = inquiry.snapshot, inquiry.snapshot.config
    if config.preempt_type != "preempt/partition_prio" or "PreemptMode" not in config.further_settings:
        return 0
    mine = max((partition.priority_tier for partition in inquiry.partitions), default=0)
    lower = {partition.name for partition in snapshot.partitions if partition.priority_tier < mine}
    nodes = {name for name, is_mine in zip(inquiry.table.names, inquiry.nodes.tolist(), strict=True) if is_mine}
    return sum(
        lower.issuperset(job.partitions) and not nodes.isdisjoint(job.allocation.nodes)
        for job in snapshot.jobs
        if not job.is_pending and job.allocation is not None
    )


def _unavailable(inquiry: Inquiry, which: Flags, variant: Variant) -> Finding:
    """Name those of some nodes whose GPUs, or CPUs, the gang could use."""
    closed = inquiry.nodes & which
    if inquiry.gang.wants_gpus:
        closed &= gpus_of(inquiry.table.gpu_types, inquiry.table.gpus_total, inquiry.gang.gpu_type) > 0
    names = list(_names(inquiry, closed))
    evidence: dict[str, Evidence] = {
        "nodes_unavailable": int(closed.sum()),
        "gpus_on_them": int(
            gpus_of(inquiry.table.gpu_types, inquiry.table.gpus_total, inquiry.gang.gpu_type)[closed].sum()
        ),
        "nodes": ",".join(names),
    }
    evidence |= _about(inquiry, names)
    return Finding(cause=Cause.NODES_UNAVAILABLE, variant=variant, evidence=evidence)


def _about(inquiry: Inquiry, names: Collection[str]) -> dict[str, Evidence]:
    """Return the reasons that nodes were given, the states of those that come back, and which can be resumed."""
    nodes = [node for node in inquiry.snapshot.nodes if node.name in names]
    reasons = sorted({node.reason for node in nodes if node.reason})
    about: dict[str, Evidence] = {"their_reasons": "; ".join(reasons)} if reasons else {}
    if states := sorted({"+".join((node.state, *node.flags)) for node in nodes if node.service is NodeService.LATER}):
        about["their_states"] = ", ".join(states)
    if resumed := sorted(node.name for node in nodes if node.can_be_resumed):
        about["nodes_to_resume"] = ",".join(resumed)
    return about


def _names(inquiry: Inquiry, nodes: Flags) -> Iterator[str]:
    rows = np.flatnonzero(nodes)
    yield from sorted(inquiry.table.names[row] for row in rows)[:_NODES_NAMED]


def impossible(inquiry: Inquiry) -> Finding | None:
    """Find out that no nodes of its partitions are enough for the job, even empty and in service."""
    unsure = (
        not inquiry.partitions or len(inquiry.partitions) < len(inquiry.job.partitions) or not inquiry.gang.gpus_known
    )
    if inquiry.fit.fits_ever or unsure or inquiry.hides_nodes or _only_a_limit_bars(inquiry):
        return None
    table = inquiry.table
    others = replace(inquiry.gang, required_nodes=())
    if inquiry.gang.required_nodes and inquiry.fitter.fit(others, inquiry.job.partitions).fits_ever:
        names = ",".join(inquiry.gang.required_nodes[:_NODES_NAMED])
        return Finding(cause=Cause.IMPOSSIBLE, evidence={"required_nodes": names})
    most = {
        asked.gpu_type: np.where(inquiry.members, gpus_of(table.gpu_types, table.gpus_total, asked.gpu_type), 0)
        for asked in _asked(inquiry)
    }
    evidence: dict[str, Evidence] = {}
    for gpu_type, by_partition in most.items():
        name = f"{gpu_type}_gpus" if gpu_type else "gpus"
        evidence[f"{name}_in_partition"] = int(by_partition.sum(axis=1).max())
        evidence[f"{name}_on_largest_node"] = int(by_partition.max(initial=0))
    nodes = inquiry.nodes
    evidence["cpus_asked"] = inquiry.gang.cpus
    evidence["cpus_on_largest_node"] = int(table.cpus_total[nodes].max(initial=0))
    if inquiry.gang.memory_mib_per_node is not None:
        evidence["memory_mib_asked_per_node"] = inquiry.gang.memory_mib_per_node
        evidence["memory_mib_on_largest_node"] = int(table.memory_total_mib[nodes].max(initial=0))
    return Finding(cause=Cause.IMPOSSIBLE, evidence=evidence)


def _only_a_limit_bars(inquiry: Inquiry) -> bool:
    """Whether only the upper end of its node range keeps the job from its partitions, a finding of its own."""
    gang = inquiry.gang
    barring = [each for each in inquiry.partitions if asks_beyond_nodes(gang, each.max_nodes_per_job)]
    if not any(gang.nodes_min <= (each.max_nodes_per_job or 0) for each in barring):
        return False
    return inquiry.fitter.fit(replace(gang, nodes_open=True), inquiry.job.partitions).fits_ever
