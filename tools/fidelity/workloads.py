"""Workloads that make eight nodes with eight GPUs queue, drawn from a seed.

Some hold what sites use beyond GPUs: partitions, QOS, arrays, drained nodes, CPUs and memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.sim.slurm.queue_tables import QosTable
from tools.fidelity.recording import (
    Account,
    Dependency,
    DependencyType,
    JobRequest,
    NiceChange,
    RecordedNodeEvent,
    RecordedNodeState,
    RecordedWorkload,
    WorkloadKind,
)

# System users that every Debian has; Slurm runs jobs only for users that the machine knows.
ACCOUNTS = (
    Account(name="vision", user="games", shares=4),
    Account(name="language", user="mail", shares=2),
    Account(name="biology", user="news", shares=1),
)
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Says how large a workload is: its jobs arrive over `arrivals_s` and sleep `shortest_s` to `longest_s`."""

    jobs: int
    arrivals_s: float
    shortest_s: float
    longest_s: float
    changes: int
    overrunning: int


LONG = Size(jobs=64, arrivals_s=120.0, shortest_s=5.0, longest_s=85.0, changes=6, overrunning=1)
SHORT = Size(jobs=30, arrivals_s=12.0, shortest_s=5.0, longest_s=28.0, changes=3, overrunning=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnShape:
    """One kind of request and how often it comes, against the others; no node count means `--gpus` alone."""

    gpus: int
    nodes: int | None
    weight: float
    switches: bool = False


SHAPES = (
    DrawnShape(gpus=1, nodes=1, weight=4),
    DrawnShape(gpus=2, nodes=1, weight=4),
    DrawnShape(gpus=3, nodes=1, weight=2),
    DrawnShape(gpus=4, nodes=1, weight=4),
    DrawnShape(gpus=6, nodes=1, weight=2),
    DrawnShape(gpus=8, nodes=1, weight=4),
    DrawnShape(gpus=8, nodes=2, weight=1),
    DrawnShape(gpus=8, nodes=2, weight=1, switches=True),
    DrawnShape(gpus=16, nodes=2, weight=2),
    DrawnShape(gpus=16, nodes=2, weight=2, switches=True),
    DrawnShape(gpus=5, nodes=None, weight=1),
    DrawnShape(gpus=12, nodes=None, weight=1),
)


def draw_workload(seed: int, size: Size) -> RecordedWorkload:
    """Draw jobs and changes of nice; the same seed and size give the same workload."""
    random = np.random.default_rng(seed)
    times = np.sort(random.uniform(0.0, size.arrivals_s, size.jobs)).round(2)
    # What fills the cluster comes at once, so that a queue forms from the start.
    times[: size.jobs // 4] = np.linspace(0.0, 1.0, size.jobs // 4).round(2)
    jobs = [_draw_job(random, rank, float(time), size) for rank, time in enumerate(times)]
    for rank in range(size.overrunning):
        victim = size.jobs // 3 + rank
        jobs[victim] = replace(jobs[victim], sleep_s=4 * MINUTE_S, time_limit_s=MINUTE_S)
    changed = np.sort(random.choice(np.arange(size.jobs // 4, size.jobs), size.changes, replace=False))
    changes = [
        NiceChange(
            name=jobs[rank].name,
            time=round(jobs[rank].submit_time + float(random.uniform(2.0, 12.0)), 2),
            nice=int(random.choice([150, 400, 900])),
        )
        for rank in changed
    ]
    changes.sort(key=lambda change: (change.time, change.name))
    return RecordedWorkload(seed=seed, jobs=tuple(jobs), changes=tuple(changes))


def _draw_job(random: np.random.Generator, rank: int, time: float, size: Size) -> JobRequest:
    weights = np.array([shape.weight for shape in SHAPES])
    shape = SHAPES[random.choice(len(SHAPES), p=weights / weights.sum())]
    sleep_s = round(float(random.uniform(size.shortest_s, size.longest_s)), 1)
    # Slurm counts limits in minutes, and a job that ends within seconds of its limit could be killed by it.
    tightest = int((sleep_s + 10.0) // MINUTE_S) + 1
    limit = tightest if random.random() < 0.5 else int(random.integers(tightest, 6))
    return JobRequest(
        name=f"job{rank:03d}",
        user=ACCOUNTS[random.choice(len(ACCOUNTS), p=[0.5, 0.3, 0.2])].user,
        submit_time=time,
        gpus=shape.gpus,
        nodes=shape.nodes,
        time_limit_s=limit * MINUTE_S,
        sleep_s=sleep_s,
        switches_wait_s=MINUTE_S if shape.switches else 0.0,
        nice=int(random.choice([0, 0, 0, 100])),
    )


SITE = Size(jobs=60, arrivals_s=100.0, shortest_s=5.0, longest_s=70.0, changes=3, overrunning=0)
# More work than the cluster does until the last submission, so that the queue grows all the time.
SATURATED = Size(jobs=600, arrivals_s=600.0, shortest_s=4.0, longest_s=30.0, changes=20, overrunning=4)

# Lines of slurm.conf; the two overlap in n03 to n06.
LONG_PARTITION, SHORT_PARTITION = "long", "short"
PARTITION_LINES = (
    f"PartitionName={LONG_PARTITION} Nodes=n[01-06] PriorityTier=1 PriorityJobFactor=5 MaxTime=UNLIMITED State=UP",
    f"PartitionName={SHORT_PARTITION} Nodes=n[03-08] PriorityTier=2 PriorityJobFactor=20 MaxTime=00:03:00 State=UP",
)
SHORT_MAX_TIME_S = 3 * MINUTE_S

# The limits are so low that each of them holds jobs back.
QOS = (
    QosTable(name="normal"),
    QosTable(name="capped", priority=10, max_gpus_per_user=16),
    QosTable(name="shared", priority=5, max_jobs_per_user=2, group_gpus=24),
)

# Both have all nodes.
LOW_TIER, HIGH_TIER = "scavenger", "urgent"
TIER_LINES = (
    f"PartitionName={LOW_TIER} Nodes=n[01-08] PriorityTier=1 MaxTime=UNLIMITED State=UP",
    f"PartitionName={HIGH_TIER} Nodes=n[01-08] PriorityTier=2 MaxTime=UNLIMITED State=UP",
)
PREEMPTING_QOS = (
    QosTable(name="normal"),
    QosTable(name="low", priority=1, grace_s=10.0),
    QosTable(name="high", priority=20, preempts=("low",)),
)
PREEMPTING_RATIO = 0.35

FIRST_DRAINED = ("n06", "n08")
LATER_DRAINED = "n02"
NODE_EVENTS = (
    *(RecordedNodeEvent(node=node, time=0.0, state=RecordedNodeState.DRAIN) for node in FIRST_DRAINED),
    RecordedNodeEvent(node=LATER_DRAINED, time=40.0, state=RecordedNodeState.DRAIN),
    RecordedNodeEvent(node=LATER_DRAINED, time=110.0, state=RecordedNodeState.RESUME),
)

# Tasks of an array run one after the other where its limit is 1, so they are short, and there are fewer other jobs.
LONGEST_TASK_S = 22.0
ARRAY_TASKS_BEYOND = 12


def draw_site_workload(seed: int, kind: WorkloadKind) -> RecordedWorkload:
    """Draw a workload of a kind other than plain; the same seed and kind give the same workload."""
    # One stream for what all kinds share, another for what this kind adds.
    plain = draw_workload(seed, SATURATED if kind is WorkloadKind.SATURATED else SITE)
    random = np.random.default_rng([seed, list(WorkloadKind).index(kind)])
    jobs = _ADDERS[kind](random, plain.jobs)
    names = {job.name for job in jobs if not job.array_size}
    return RecordedWorkload(
        seed=seed,
        kind=kind,
        jobs=tuple(jobs),
        changes=tuple(change for change in plain.changes if change.name in names),
        node_events=NODE_EVENTS if kind is WorkloadKind.DRAINED else (),
    )


def _with_partitions(random: np.random.Generator, jobs: Sequence[JobRequest]) -> list[JobRequest]:
    """Spread jobs over both partitions, within the time limit of the short one."""
    return [
        replace(job, partition=SHORT_PARTITION, time_limit_s=min(job.time_limit_s, SHORT_MAX_TIME_S))
        if random.random() < 0.45
        else replace(job, partition=LONG_PARTITION)
        for job in jobs
    ]


def _with_qos(random: np.random.Generator, jobs: Sequence[JobRequest]) -> list[JobRequest]:
    """Give most jobs one of the two QOS with limits."""
    return [replace(job, qos=QOS[random.choice(len(QOS), p=[0.2, 0.45, 0.35])].name) for job in jobs]


def _with_tiers(random: np.random.Generator, jobs: Sequence[JobRequest]) -> list[JobRequest]:
    """Spread jobs over the partitions of two tiers."""
    is_high = random.random(len(jobs)) < PREEMPTING_RATIO
    return [replace(job, partition=HIGH_TIER if high else LOW_TIER) for job, high in zip(jobs, is_high, strict=True)]


def _with_preempting_qos(random: np.random.Generator, jobs: Sequence[JobRequest]) -> list[JobRequest]:
    """Give jobs a QOS that preempts another one, that one, or none of the two."""
    drawn = random.choice(3, len(jobs), p=[0.15, 0.85 - PREEMPTING_RATIO, PREEMPTING_RATIO])
    return [replace(job, qos=PREEMPTING_QOS[place].name) for job, place in zip(jobs, drawn.tolist(), strict=True)]


def _with_arrays(random: np.random.Generator, jobs: Sequence[JobRequest]) -> list[JobRequest]:
    """Make some jobs arrays of small tasks, and let others wait for jobs before them or for a time."""
    count = len(jobs) - ARRAY_TASKS_BEYOND
    drawn = list(jobs[:count])
    for rank in range(2, count, 7):
        drawn[rank] = replace(
            drawn[rank],
            gpus=int(random.choice([2, 4, 8])),
            nodes=1,
            sleep_s=min(drawn[rank].sleep_s, LONGEST_TASK_S),
            switches_wait_s=0.0,
            array_size=int(random.integers(3, 7)),
            array_limit=int(random.integers(1, 4)),
        )
    # Whatever waits for this one waits for its time limit.
    drawn[5] = replace(drawn[5], sleep_s=4 * MINUTE_S, time_limit_s=MINUTE_S)
    for rank in range(11, count):
        job = drawn[rank]
        match rank % 7:
            case 3:
                drawn[rank] = replace(job, dependency=_after(random, DependencyType.AFTER_OK, drawn[6:rank]))
            case 5:
                drawn[rank] = replace(job, dependency=_after(random, DependencyType.AFTER_ANY, drawn[5:rank]))
            case 6:
                drawn[rank] = replace(job, begin_delay_s=float(random.integers(15, 70)))
            case 0:
                # A singleton waits for jobs of its own user only.
                drawn[rank] = replace(
                    job,
                    user=drawn[0].user,
                    shared_name="nightly",
                    dependency=Dependency(type=DependencyType.SINGLETON),
                )
            case _:
                pass
    waiting = next(rank for rank in range(11, count) if rank % 7 == 5)
    drawn[waiting] = replace(
        drawn[waiting], dependency=Dependency(type=DependencyType.AFTER_ANY, names=(drawn[5].name,))
    )
    return drawn


def _after(random: np.random.Generator, type_: DependencyType, earlier: Sequence[JobRequest]) -> Dependency:
    """Draw one or two of the jobs that were submitted shortly before."""
    recent = [job.name for job in earlier[-8:] if not job.begin_delay_s]
    names = random.choice(recent, min(len(recent), int(random.integers(1, 3))), replace=False)
    return Dependency(type=type_, names=tuple(sorted(map(str, names))))


def _with_fewer_jobs(random: np.random.Generator, jobs: Sequence[JobRequest]) -> list[JobRequest]:
    """Leave out some jobs, as less of the cluster is there to run them."""
    kept = np.sort(random.choice(len(jobs), len(jobs) - 6, replace=False))
    return [jobs[rank] for rank in kept]


def _unchanged(_random: np.random.Generator, jobs: Sequence[JobRequest]) -> list[JobRequest]:
    """Return the jobs as they are."""
    return list(jobs)


def _with_cpus(random: np.random.Generator, jobs: Sequence[JobRequest]) -> list[JobRequest]:
    """Ask for CPUs and memory, some jobs without GPUs and some for whole nodes."""
    drawn = []
    for job in jobs:
        if job.nodes is None or random.random() < 0.35:
            drawn.append(
                replace(
                    job,
                    gpus=0,
                    nodes=1,
                    switches_wait_s=0.0,
                    sleep_s=_shorter(job),
                    cpus=int(random.choice([1, 2, 4, 8, 12])),
                    memory_mib=int(random.choice([2000, 8000, 16000, 40000])),
                    exclusive=bool(random.random() < 0.15),
                )
            )
            continue
        per_node = job.gpus // job.nodes
        exclusive = bool(per_node < 8 and random.random() < 0.12)
        # Slurm counts every GPU of an exclusive node, and refuses more CPUs for them than the node has.
        most = 1 if exclusive else 2 if per_node > 4 else 4
        drawn.append(
            replace(
                job,
                sleep_s=_shorter(job),
                cpus_per_gpu=int(random.integers(1, most + 1)),
                memory_mib=int(random.choice([4000, 8000, 24000, 48000])),
                exclusive=exclusive,
            )
        )
    return drawn


def _shorter(job: JobRequest) -> float:
    """Shorten a job, as CPUs, memory and GPUs that each bind in turn leave more of a node idle."""
    return round(0.75 * job.sleep_s, 1)


_ADDERS: Mapping[WorkloadKind, Callable[[np.random.Generator, Sequence[JobRequest]], list[JobRequest]]] = {
    WorkloadKind.PARTITIONS: _with_partitions,
    WorkloadKind.QOS: _with_qos,
    WorkloadKind.ARRAYS: _with_arrays,
    WorkloadKind.DRAINED: _with_fewer_jobs,
    WorkloadKind.CPU: _with_cpus,
    WorkloadKind.SATURATED: _unchanged,
    WorkloadKind.TIERS: _with_tiers,
    WorkloadKind.PREEMPTING_QOS: _with_preempting_qos,
}
