"""Hypothesis strategies for whole snapshots: small clusters in which everything Slurm allows may happen at once.

Half of the snapshots are *busy*: ordinary gangs queue for GPUs that are mostly taken, so that there is something to
advise. The other half is whatever Slurm allows.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from advisor.domain.gang import GangRequest, GpuCount, GpuScope, ShareCount, SwitchRequest
from advisor.domain.job import Allocation, ArrayRecord, HetRecord, Job, JobHints, JobState, Sensitivity
from advisor.domain.node import GpuPool, Node
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import Topology, TopologyKind
from tests.builders import (
    DAY_S,
    HOUR_S,
    TAKEN_AT,
    make_config,
    make_gang,
    make_hints,
    make_job,
    make_node,
    make_partition,
    make_snapshot,
    make_topology,
)

# What breaks terminals, logs, web pages, shells and parsers; no letter, digit or separator of Slurm's own words.
HOSTILE = "\x00\x07\x1b\r\n\t '\"`$;<>\\{}~éß漢🙂\u202e\u200b\ufeff"
GPU_TYPES = (None, "a100", "v100")
# As Slurm spells them; what stands behind the colon is a list of nodes.
REASONS = ("None", "Priority", "Resources", "Dependency", "JobHeldUser", "QOSMaxJobsPerUserLimit", "BeginTime")


def hostile_texts() -> st.SearchStrategy[str]:
    """Draw a name that no sane user chooses."""
    return st.text(HOSTILE, min_size=1, max_size=6)


def text_names() -> st.SearchStrategy[str]:
    """Draw an ordinary or a hostile name."""
    return st.sampled_from(["alice", "bob", "smith-lab", "n1", "n10", "n2", "train.sh"]) | hostile_texts()


@st.composite
def ordinary_gangs(draw: st.DrawFn) -> GangRequest:
    """Draw a request for some GPUs that most clusters can grant."""
    scope, gpus = draw(st.sampled_from([(GpuScope.JOB, 1), (GpuScope.JOB, 8), (GpuScope.JOB, 4), (GpuScope.NODE, 4)]))
    return make_gang(gpus, scope=scope, nodes_max=draw(st.sampled_from([None, 1, 2])), tasks=2)


@st.composite
def gangs(draw: st.DrawFn, *, names: st.SearchStrategy[str], nodes: Sequence[str]) -> GangRequest:
    """Draw a request in one of Slurm's forms, in several at once, for parts of GPUs, or for none."""
    counts = st.builds(
        lambda gpu_type, count: (GpuCount(gpu_type=gpu_type, count=count),),
        st.sampled_from(GPU_TYPES),
        st.integers(1, 16),
    )
    none = st.just(())
    form = draw(st.sampled_from(["job", "node", "socket", "task", "two types", "several", "shares", "cpu", "unknown"]))
    nodes_min = draw(st.integers(1, 3))
    lists = st.lists(st.sampled_from(nodes), unique=True, max_size=2).map(sorted).map(tuple)
    return GangRequest(
        per_job=draw(counts if form in {"job", "several"} else none)
        or ((GpuCount(gpu_type="a100", count=2), GpuCount(gpu_type="v100", count=1)) if form == "two types" else ()),
        per_node=draw(counts if form in {"node", "several"} else none),
        per_socket=draw(counts if form == "socket" else none),
        per_task=draw(counts if form == "task" else none),
        shares=(ShareCount(kind=draw(st.sampled_from(["mps", "shard"])), count=10),) if form == "shares" else (),
        gpus_known=form != "unknown",
        nodes_min=nodes_min,
        nodes_max=draw(st.none() | st.integers(nodes_min, 4)),
        tasks=draw(st.integers(1, 4)),
        cpus=draw(st.integers(1, 32)),
        cpus_per_gpu=draw(st.none() | st.integers(1, 8)),
        memory_mib_per_node=draw(st.none() | st.integers(1, 64_000)),
        exclusive=draw(st.booleans()),
        switches=draw(st.none() | st.builds(SwitchRequest, count=st.integers(1, 2), max_wait_s=st.just(HOUR_S))),
        features=draw(st.just("") | st.builds("[{}*2|{}]&nvlink".format, names, names)),
        required_nodes=draw(lists),
        excluded_nodes=draw(lists),
    )


@st.composite
def hints(draw: st.DrawFn, *, names: st.SearchStrategy[str]) -> JobHints:
    """Draw what a user declared, mostly nothing."""
    if draw(st.integers(0, 3)):
        return JobHints()
    low = draw(st.integers(1, 4))
    return make_hints(
        draw(st.none() | names),
        gpus=draw(st.none() | st.tuples(st.just(low), st.integers(low, 16))),
        checkpoint_s=draw(st.none() | st.just(300.0)),
        sensitivity=draw(st.none() | st.sampled_from(Sensitivity)),
        opted_out=draw(st.booleans()),
        unknown=tuple(draw(st.lists(names, max_size=2))),
    )


@st.composite
def ordinary_jobs(draw: st.DrawFn, job_id: int, *, names: st.SearchStrategy[str]) -> Job:
    """Draw a job that waits for its GPUs and for nothing else."""
    return make_job(
        job_id,
        gang=draw(ordinary_gangs()),
        submitted_ago_s=draw(st.sampled_from([600.0, HOUR_S, DAY_S])),
        time_limit_s=draw(st.sampled_from([600.0, HOUR_S, 2 * DAY_S])),
        priority=draw(st.integers(1, 3000)),
        name=draw(names),
        user=draw(names),
        account=draw(names),
        hints=make_hints(gpus=draw(st.sampled_from([None, None, (1, 16)]))),
    )


@st.composite
def odd_jobs(draw: st.DrawFn, job_id: int, *, names: st.SearchStrategy[str], nodes: Sequence[str]) -> Job:
    """Draw a job that waits: plain, held, dependent, deferred, an array record or a component of a het job."""
    kind = draw(st.sampled_from(["plain", "plain", "held", "dependent", "deferred", "array", "task", "het", "cron"]))
    submitted_ago_s = draw(st.sampled_from([0.0, 30.5, HOUR_S, 3 * DAY_S]))
    time_limit_s = draw(st.none() | st.sampled_from([60.0, HOUR_S, DAY_S]))
    job = make_job(
        job_id,
        gang=draw(gangs(names=names, nodes=nodes)),
        submitted_ago_s=submitted_ago_s,
        eligible_time=draw(st.sampled_from([None, TAKEN_AT - submitted_ago_s])),
        time_limit_s=time_limit_s,
        time_min_s=None if time_limit_s is None else draw(st.none() | st.just(time_limit_s / 2)),
        reason=draw(st.sampled_from(REASONS) | names.map("ReqNodeNotAvail, UnavailableNodes:{}".format)),
        name=draw(names),
        user=draw(names),
        account=draw(st.just("") | names),
        qos=draw(st.just("normal") | names),
        reservation=draw(st.just("") | names),
        priority=draw(st.none() | st.integers(0, 10_000)),
        nice=draw(st.sampled_from([0, 0, 100, -5])),
        requeueable=draw(st.booleans()),
        hints=draw(hints(names=names)),
    )
    match kind:
        case "held":
            return replace(job, held=True, priority=0, reason="JobHeldUser")
        case "dependent":
            words = st.sampled_from(["afterok:12(unfulfilled)", "singleton", "afterany:7:9_[1-3]?expand:4"]) | names
            return replace(job, dependency=draw(words), reason="Dependency")
        case "deferred":
            return replace(job, eligible_time=TAKEN_AT + HOUR_S, reason="BeginTime")
        case "array":
            return replace(job, array=ArrayRecord(array_job_id=job_id, waiting="0-3,7%2", max_running=2))
        case "task":
            return replace(job, array=ArrayRecord(array_job_id=1, task_id=job_id))
        case "het":
            return replace(job, het=HetRecord(het_job_id=job_id, offset=draw(st.integers(0, 2))))
        case _:
            return replace(job, cron=kind == "cron")


def running(job: Job, node: str, count: int, gpu_type: str | None) -> Job:
    """Turn a drawn job into one that holds GPUs of one node, and has not done so for long."""
    start_time = max(job.submit_time, TAKEN_AT - 300.0)
    return replace(
        job,
        state=JobState.RUNNING,
        reason="None",
        held=False,
        dependency="",
        gang=GangRequest(per_job=(GpuCount(gpu_type=gpu_type, count=count),)),
        allocation=Allocation(nodes=(node,), gpus=(GpuCount(gpu_type=gpu_type, count=count),)),
        start_time=start_time,
        eligible_time=job.submit_time,
        end_time=None if job.time_limit_s is None else start_time + job.time_limit_s,
    )


@st.composite
def idle_nodes(draw: st.DrawFn, *, names: st.SearchStrategy[str], busy: bool) -> list[Node]:
    """Draw idle nodes: GPUs of one type, CPU nodes, closed ones, some that share GPUs; alike in a busy cluster."""
    node_names = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    if busy:
        return [make_node(name) for name in sorted(node_names)]
    drawn = [
        make_node(
            name,
            draw(st.sampled_from([0, 4, 8])),
            gpu_type=draw(st.sampled_from(GPU_TYPES)),
            state=draw(st.sampled_from(["IDLE", "IDLE", "IDLE", "DOWN"])),
            flags=draw(st.sampled_from([(), (), ("DRAIN",)])),
            reason=draw(st.just("") | names),
            shares=draw(st.sampled_from([(), (ShareCount(kind="shard", count=32),)])),
            features=tuple(draw(st.lists(names, max_size=2, unique=True))),
            weight=draw(st.integers(1, 3)),
        )
        for name in node_names
    ]
    return sorted(drawn, key=lambda node: node.name)


@st.composite
def topologies(draw: st.DrawFn, *, names: st.SearchStrategy[str], nodes: Sequence[str]) -> Topology:
    """Draw a topology of any kind over the nodes."""
    leaves = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    width = math.ceil(len(nodes) / len(leaves))
    below = {leaf: nodes[rank * width : (rank + 1) * width] for rank, leaf in enumerate(leaves)}
    return make_topology(below, kind=draw(st.sampled_from(TopologyKind)), spine=draw(st.booleans()))


@st.composite
def snapshots(draw: st.DrawFn, *, names: st.SearchStrategy[str] | None = None) -> Snapshot:
    """Draw a snapshot in which no node holds more than it has; `names` draws every text a site or user chooses."""
    names = text_names() if names is None else names
    busy = draw(st.booleans())
    nodes = draw(idle_nodes(names=names, busy=busy))
    node_names = [node.name for node in nodes]
    jobs = [
        draw(ordinary_jobs(job_id, names=names) if busy else odd_jobs(job_id, names=names, nodes=node_names))
        for job_id in draw(
            st.lists(st.integers(1, 10**6), unique=True, min_size=4 if busy else 0, max_size=10 if busy else 6)
        )
    ]
    for rank, job in enumerate(jobs):
        free = [number for number, node in enumerate(nodes) if any(pool.idle for pool in node.gpus)]
        if not free or draw(st.booleans()):
            continue
        number = free[0] if busy else draw(st.sampled_from(free))
        pool = nodes[number].gpus[0]
        count = pool.idle if busy else draw(st.integers(1, pool.idle))
        jobs[rank] = running(job, nodes[number].name, count, pool.gpu_type)
        taken = GpuPool(gpu_type=pool.gpu_type, total=pool.total, used=pool.total - pool.idle + count)
        nodes[number] = replace(nodes[number], gpus=(taken,), state="MIXED" if taken.idle else "ALLOCATED")
    partitions = draw(st.lists(names, min_size=1, max_size=2, unique=True))
    topology = draw(topologies(names=names, nodes=node_names))
    return make_snapshot(
        [replace(job, partitions=tuple(partitions)) for job in jobs],
        [replace(node, partitions=tuple(sorted(partitions))) for node in nodes],
        partitions=[
            make_partition(
                name,
                node_names,
                is_up=busy or draw(st.booleans()),
                max_time_s=draw(st.none() | st.just(DAY_S)),
                priority_tier=1 if busy else draw(st.integers(1, 2)),
            )
            for name in partitions
        ],
        topology=topology,
        config=make_config(
            cluster=draw(names),
            slurm_version=draw(st.sampled_from(["", "22.05.8", "24.11.5", "26.05.1"])),
            topology_plugin=f"topology/{topology.kind}",
            scheduler_parameters=draw(
                st.sampled_from([{}, {"max_switch_wait": "86400", "bf_continue": ""}, {"bf_window": "2880"}])
            ),
            accounting_tres=("cpu", "gres/gpu", draw(names.map("license/{}".format))),
        ),
        unread=tuple(draw(st.lists(names, max_size=1))),
    )
