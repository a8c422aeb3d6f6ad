"""Domain values with sensible defaults: a test names what matters to it and nothing else.

The cluster they build: four nodes of eight untyped GPUs under two leaf switches and a spine, one partition
"gpu" over all of them, Slurm 24.11.5 with multifactor priority. Everything is a day's job of one GPU, submitted
an hour ago, unless the test says otherwise.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

from advisor.domain.actions import Action, SizeRequest
from advisor.domain.gang import GangRequest, GpuCount, GpuScope, ShareCount, SwitchRequest
from advisor.domain.job import Allocation, ArrayRecord, GpuRange, HetRecord, Job, JobHints, JobState, Sensitivity
from advisor.domain.node import GpuPool, Node
from advisor.domain.plan import Expected, Facts, Kind, Recommendation
from advisor.domain.site import Partition, SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import Stretch, WaitSum
from advisor.domain.topology import Switch, Topology, TopologyKind
from advisor.planning.beliefs import Basis
from advisor.planning.lift import StartsNext
from advisor.planning.lift_gain import Outlook

TAKEN_AT = 1_800_000_000.0
MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86_400.0

LEAVES: Mapping[str, Sequence[str]] = {"leaf1": ("n01", "n02"), "leaf2": ("n03", "n04")}


class GangFields(TypedDict, total=False):
    """The fields of `GangRequest` that `make_gang` passes on as they are."""

    per_job: tuple[GpuCount, ...]
    per_node: tuple[GpuCount, ...]
    per_socket: tuple[GpuCount, ...]
    per_task: tuple[GpuCount, ...]
    shares: tuple[ShareCount, ...]
    gpus_known: bool
    nodes_min: int
    nodes_max: int | None
    nodes_open: bool
    tasks: int
    cpus: int
    cpus_per_gpu: int | None
    memory_mib_per_node: int | None
    exclusive: bool
    switches: SwitchRequest | None
    features: str
    required_nodes: tuple[str, ...]
    excluded_nodes: tuple[str, ...]


class JobFields(TypedDict, total=False):
    """The fields of `Job` that `make_job` passes on as they are."""

    reason: str
    name: str
    user: str
    account: str
    partitions: tuple[str, ...]
    qos: str
    allocation: Allocation | None
    hints: JobHints
    array: ArrayRecord | None
    het: HetRecord | None
    eligible_time: float | None
    start_time: float | None
    end_time: float | None
    time_min_s: float | None
    priority: int | None
    nice: int
    held: bool
    dependency: str
    reservation: str
    requeueable: bool
    unseen: tuple[str, ...]
    cron: bool


class NodeFields(TypedDict, total=False):
    """The fields of `Node` that `make_node` passes on as they are."""

    state: str
    flags: tuple[str, ...]
    reason: str
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    shares: tuple[ShareCount, ...]
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    weight: int


class ConfigFields(TypedDict, total=False):
    """The fields of `SiteConfig` that `make_config` passes on as they are."""

    cluster: str
    slurm_version: str
    scheduler_type: str
    scheduler_parameters: Mapping[str, str]
    select_parameters: tuple[str, ...]
    topology_plugin: str
    priority_type: str
    priority_weights: Mapping[str, int]
    priority_max_age_s: float | None
    priority_calc_period_s: float | None
    site_factor_plugin: str
    private_data: tuple[str, ...]
    accounting_enforce: tuple[str, ...]
    accounting_tres: tuple[str, ...]
    preempt_type: str


def size_of(*gpus: GpuCount, limit_s: float | None = None) -> SizeRequest:
    """Build what a change of a size writes: GPU counts, and the time limit where that is recorded."""
    return SizeRequest(gpus=gpus, time_limit_s=limit_s)


def gpu_counts(count: int, gpu_type: str | None = None) -> tuple[GpuCount, ...]:
    """Return a count of one type; empty for 0."""
    return (GpuCount(gpu_type=gpu_type, count=count),) if count else ()


def make_gang(
    gpus: int = 1, *, scope: GpuScope = GpuScope.JOB, gpu_type: str | None = None, **fields: Unpack[GangFields]
) -> GangRequest:
    """Build a request for `gpus` GPUs per `scope`; a `per_*` field in `fields` takes the place of `gpus`."""
    defaults: GangFields = {}
    if not fields.keys() & {str(form) for form in GpuScope}:
        match scope:
            case GpuScope.JOB:
                defaults = {"per_job": gpu_counts(gpus, gpu_type)}
            case GpuScope.NODE:
                defaults = {"per_node": gpu_counts(gpus, gpu_type)}
            case GpuScope.SOCKET:
                defaults = {"per_socket": gpu_counts(gpus, gpu_type)}
            case GpuScope.TASK:
                defaults = {"per_task": gpu_counts(gpus, gpu_type)}
    defaults.update(fields)
    return GangRequest(**defaults)


def make_hints(
    model: str | None = None,
    *,
    gpus: tuple[int, int] | None = None,
    checkpoint_s: float | None = None,
    step_s: float | None = None,
    sensitivity: Sensitivity | None = None,
    opted_out: bool = False,
    by: float | None = None,
    unknown: tuple[str, ...] = (),
) -> JobHints:
    """Build what a user declared; `gpus` holds both ends of the range."""
    return JobHints(
        model=model,
        gpus=None if gpus is None else GpuRange(low=gpus[0], high=gpus[1]),
        checkpoint_s=checkpoint_s,
        step_s=step_s,
        sensitivity=sensitivity,
        opted_out=opted_out,
        deadline_time=by,
        unknown=unknown,
    )


def make_job(
    job_id: int = 1,
    *,
    gpus: int = 1,
    gang: GangRequest | None = None,
    running_on: Sequence[str] = (),
    state: JobState | None = None,
    submitted_ago_s: float = HOUR_S,
    submit_time: float | None = None,
    started_ago_s: float = HOUR_S / 2,
    time_limit_s: float | None = DAY_S,
    **fields: Unpack[JobFields],
) -> Job:
    """Build a pending job of `gpus` GPUs (or of `gang`), or one that runs on the nodes of `running_on`."""
    gang = make_gang(gpus) if gang is None else gang
    submit_time = TAKEN_AT - submitted_ago_s if submit_time is None else submit_time
    defaults: JobFields = {
        "reason": "Priority",
        "name": f"job{job_id}",
        "user": "alice",
        "account": "lab",
        "partitions": ("gpu",),
        "qos": "normal",
        "eligible_time": submit_time,
        "priority": 1000,
    }
    if running_on:
        start_time = TAKEN_AT - started_ago_s
        defaults |= {
            "reason": "None",
            "start_time": start_time,
            "end_time": None if time_limit_s is None else start_time + time_limit_s,
            "allocation": Allocation(
                nodes=tuple(sorted(running_on)), gpus=gpu_counts(_gpus_held(gang, running_on), gang.gpu_type)
            ),
        }
    defaults.update(fields)
    return Job(
        job_id=job_id,
        state=state or (JobState.RUNNING if running_on else JobState.PENDING),
        gang=gang,
        submit_time=submit_time,
        time_limit_s=time_limit_s,
        **defaults,
    )


def _gpus_held(gang: GangRequest, nodes: Sequence[str]) -> int:
    return replace(gang, nodes_min=max(gang.nodes_min, len(nodes))).gpu_count or 0


def make_node(
    name: str = "n01", gpus: int = 8, used: int | None = 0, *, gpu_type: str | None = None, **fields: Unpack[NodeFields]
) -> Node:
    """Build a node of `gpus` GPUs; its state follows from `used`."""
    defaults: NodeFields = {
        "state": "IDLE" if not used else "ALLOCATED" if used >= gpus else "MIXED",
        "cpus": 64,
        "memory_mib": 512_000,
        "partitions": ("gpu",),
    }
    defaults.update(fields)
    pools = (GpuPool(gpu_type=gpu_type, total=gpus, used=used),) if gpus else ()
    return Node(name=name, gpus=pools, **defaults)


def make_nodes(names: Iterable[str], jobs: Iterable[Job] = (), *, gpus: int = 8) -> tuple[Node, ...]:
    """Build nodes on which just the allocations of `jobs` are in use, each spread evenly over its nodes."""
    used = Counter[str]()
    for job in jobs:
        if job.allocation is None:
            continue
        total = sum(gpu.count for gpu in job.allocation.gpus)
        for rank, name in enumerate(job.allocation.nodes):
            used[name] += math.ceil((total - rank) / len(job.allocation.nodes))
    return tuple(make_node(name, gpus, used[name]) for name in sorted(names))


def make_holders(nodes: Iterable[Node], *, left_s: float = 600.0) -> tuple[Job, ...]:
    """Build a running job for the GPUs in use on each node, which ends by its time limit in `left_s`."""
    return tuple(
        make_job(
            90_001 + number,
            gpus=used,
            running_on=[node.name],
            started_ago_s=HOUR_S,
            time_limit_s=HOUR_S + left_s,
            partitions=node.partitions,
        )
        for number, node in enumerate(nodes)
        if (used := sum(pool.used or 0 for pool in node.gpus))
    )


def make_topology(
    leaves: Mapping[str, Sequence[str]] = LEAVES, *, kind: TopologyKind = TopologyKind.TREE, spine: bool = True
) -> Topology:
    """Build leaf switches (or blocks) from their nodes; `spine` puts one switch above a tree's leaves."""
    if kind is TopologyKind.FLAT:
        return Topology(kind=kind)
    switches = [
        Switch(name=name, level=0, nodes=tuple(sorted(nodes))) for name, nodes in sorted(leaves.items()) if nodes
    ]
    if spine and kind is TopologyKind.TREE:
        below = sorted(node for nodes in leaves.values() for node in nodes)
        switches.append(Switch(name="spine", level=1, nodes=tuple(below)))
    return Topology(kind=kind, switches=tuple(switches))


def make_partition(
    name: str = "gpu",
    nodes: Sequence[str] = ("n01", "n02", "n03", "n04"),
    *,
    is_up: bool = True,
    max_time_s: float | None = None,
    default_time_s: float | None = None,
    priority_tier: int = 1,
    min_nodes_per_job: int = 1,
    max_nodes_per_job: int | None = None,
) -> Partition:
    """Build a partition without limits."""
    return Partition(
        name=name,
        is_up=is_up,
        nodes=tuple(sorted(nodes)),
        max_time_s=max_time_s,
        default_time_s=default_time_s,
        priority_tier=priority_tier,
        min_nodes_per_job=min_nodes_per_job,
        max_nodes_per_job=max_nodes_per_job,
    )


def make_config(**fields: Unpack[ConfigFields]) -> SiteConfig:
    """Build the configuration of a site on which every lever works."""
    defaults: ConfigFields = {
        "cluster": "test",
        "slurm_version": "24.11.5",
        "scheduler_type": "sched/backfill",
        "scheduler_parameters": {"max_switch_wait": "86400"},
        "select_parameters": ("CR_CORE_MEMORY",),
        "topology_plugin": "topology/tree",
        "priority_type": "priority/multifactor",
        "priority_weights": {"age": 1000, "job_size": 1000},
        "priority_max_age_s": 7 * DAY_S,
        "priority_calc_period_s": 5 * MINUTE_S,
        "accounting_tres": ("cpu", "mem", "node", "gres/gpu"),
        "preempt_type": "preempt/none",
    }
    defaults.update(fields)
    return SiteConfig(**defaults)


def make_snapshot(
    jobs: Iterable[Job] = (),
    nodes: Iterable[Node] | None = None,
    *,
    partitions: Iterable[Partition] | None = None,
    topology: Topology | None = None,
    config: SiteConfig | None = None,
    taken_at: float = TAKEN_AT,
    source: str = "text",
    unread: tuple[str, ...] = (),
) -> Snapshot:
    """Build a snapshot; what is left out follows from the rest.

    Without `nodes` the cluster has n01 to n04 and the running jobs hold their GPUs there. The nodes of the
    default topology are halved over two leaves.
    """
    jobs = sorted(jobs, key=lambda job: job.job_id)
    if nodes is None:
        nodes = make_nodes((name for below in LEAVES.values() for name in below), jobs)
    nodes = sorted(nodes, key=lambda node: node.name)
    names = [node.name for node in nodes]
    half = math.ceil(len(names) / 2)
    topology = topology or make_topology({"leaf1": names[:half], "leaf2": names[half:]})
    return Snapshot(
        taken_at=taken_at,
        source=source,
        config=config or make_config(topology_plugin=f"topology/{topology.kind}"),
        topology=topology,
        partitions=tuple(sorted(partitions or [make_partition(nodes=names)], key=lambda partition: partition.name)),
        nodes=tuple(nodes),
        jobs=tuple(jobs),
        unread=unread,
    )


LIFTED = StartsNext(
    gpu_hours=1.0,
    jobs_passed=2,
    gpu_hours_ahead=16.0,
    gpu_hours_ahead_after=0.0,
    others_delayed_s_max=300.0,
    priority=100,
    priority_after=200,
    queueing_delay_s=600.0,
    turnaround_s=3600.0,
    basis=Basis.RULE,
    sooner_s_low=-1800.0,
    sooner_s_high=9000.0,
    outlook=Outlook(site_ahead_s=4800.0, ahead_s=0.0, own_s=150.0, advised_s=600.0, run_s=3600.0, jobs_passed=2),
    used_limit_ratio_low=0.25,
)


def make_recommendation(
    action: Action,
    *,
    kind: Kind = Kind.REORDER,
    facts: Facts = LIFTED,
    saved_s: tuple[float, float] = (0.0, 0.0),
    delay_s: float = 0.0,
    revert_after_s: float | None = None,
) -> Recommendation:
    """Build a recommendation; by default it promises nothing."""
    low_s, high_s = saved_s
    return Recommendation(
        kind=kind,
        action=action,
        facts=facts,
        expected=Expected(
            saved_s=(low_s + high_s) / 2,
            saved_s_low=low_s,
            saved_s_high=high_s,
            jobs_helped=1,
            added_delay_max_s=delay_s,
        ),
        revert_after_s=revert_after_s,
    )


def make_wait_sum(
    waited_s: float = 60.0,
    plain_s: tuple[float, ...] = (60.0,),
    *,
    jobs: int = 1,
    carried: int = 0,
    less_s: float = 0.0,
    more_s: float = 0.0,
) -> WaitSum:
    """Build the waits of some jobs, of one that waited as long as without advice by default."""
    return WaitSum(jobs=jobs, carried=carried, waited_s=waited_s, plain_s=plain_s, less_s=less_s, more_s=more_s)


def make_stretch(
    *,
    anchor_time: float = TAKEN_AT,
    until: float | None = None,
    waited_s: float = 60.0,
    plain_s: tuple[float, ...] = (60.0,),
    user: str = "ann",
    account: str = "lab",
    notes: tuple[str, ...] = (),
) -> Stretch:
    """Build a stretch of an hour with one job."""
    of_job = make_wait_sum(waited_s, plain_s)
    return Stretch(
        anchor_time=anchor_time,
        until=anchor_time + HOUR_S if until is None else until,
        total=of_job,
        by_user={user: of_job},
        by_account={account: of_job},
        notes=notes,
    )


def make_cluster(
    jobs: Iterable[Job] = (), *, leaves: Mapping[str, Sequence[str]] = LEAVES, gpus_per_node: int = 8
) -> Snapshot:
    """Build a snapshot whose nodes are those of `leaves`, in use as far as the running jobs hold them."""
    jobs = list(jobs)
    names = [name for below in leaves.values() for name in below]
    return make_snapshot(jobs, make_nodes(names, jobs, gpus=gpus_per_node), topology=make_topology(leaves))
