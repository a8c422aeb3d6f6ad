"""A made-up cluster with a busy queue, the same for equal seeds."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from advisor.domain.gang import GangRequest, GpuCount
from advisor.domain.job import Allocation, GpuRange, Job, JobHints, JobState
from advisor.domain.node import GpuPool, Node
from advisor.domain.site import Partition, SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import Switch, Topology, TopologyKind

TAKEN_AT = 1_800_000_000.0
NODES_PER_LEAF = 16
TYPES = ("a100", "h100", "v100")
PARTITIONS = ("gpu", "long", "debug", "vision")
# Shared by all jobs, as the readers do it.
_NO_HINTS = JobHints()
_ELASTIC = JobHints(gpus=GpuRange(low=1, high=16), checkpoint_s=300.0)


def synthetic(n_jobs: int, n_nodes: int, seed: int) -> Snapshot:
    """Make a busy cluster with `n_jobs` pending jobs of mixed shapes."""
    chance = np.random.default_rng(seed)
    names = [f"n{number:05}" for number in range(n_nodes)]
    nodes, running = _nodes(names, chance, first_id=n_jobs + 1)
    parts = np.array_split(np.array(names), len(PARTITIONS))
    partitions = tuple(
        Partition(name=name, nodes=tuple(str(node) for node in part))
        for name, part in sorted(zip(PARTITIONS, parts, strict=True))
    )
    where = {node: partition.name for partition in partitions for node in partition.nodes}
    leaves = tuple(
        Switch(name=f"leaf{start // NODES_PER_LEAF:04}", level=0, nodes=tuple(names[start : start + NODES_PER_LEAF]))
        for start in range(0, n_nodes, NODES_PER_LEAF)
    )
    pending = tuple(_pending(job_id, chance) for job_id in range(1, n_jobs + 1))
    return Snapshot(
        taken_at=TAKEN_AT,
        source="synthetic",
        config=SiteConfig(
            cluster="synthetic",
            slurm_version="24.11.5",
            scheduler_type="sched/backfill",
            scheduler_parameters={"max_switch_wait": "86400"},
            priority_type="priority/multifactor",
        ),
        topology=Topology(
            kind=TopologyKind.TREE, switches=(*leaves, Switch(name="spine", level=1, nodes=tuple(names)))
        ),
        partitions=partitions,
        nodes=tuple(replace(node, partitions=(where[node.name],)) for node in nodes),
        jobs=pending + tuple(_running(job, where) for job in running),
    )


def _nodes(
    names: list[str], chance: np.random.Generator, first_id: int
) -> tuple[list[Node], list[tuple[int, str, int, str, float]]]:
    nodes, running = [], []
    used_counts = chance.choice([0, 4, 6, 8, 8, 8, 8], size=len(names))
    ends = chance.integers(600, 86_400, size=len(names))
    for number, (name, used, end) in enumerate(zip(names, used_counts, ends, strict=True)):
        gpu_type = TYPES[number % len(TYPES)]
        drained = number % 97 == 0
        nodes.append(
            Node(
                name=name,
                state="MIXED" if used else "IDLE",
                flags=("DRAIN",) if drained else (),
                cpus=64,
                cpus_used=int(used) * 4,
                memory_mib=512_000,
                gpus=(GpuPool(gpu_type=gpu_type, total=8, used=int(used)),),
            )
        )
        if used:
            running.append((first_id + number, name, int(used), gpu_type, float(end)))
    return nodes, running


def _running(job: tuple[int, str, int, str, float], where: dict[str, str]) -> Job:
    job_id, node, gpus, gpu_type, end_s = job
    return Job(
        job_id=job_id,
        state=JobState.RUNNING,
        partitions=(where[node],),
        gang=GangRequest(per_node=(GpuCount(gpu_type=gpu_type, count=gpus),), nodes_max=1),
        allocation=Allocation(nodes=(node,), gpus=(GpuCount(gpu_type=gpu_type, count=gpus),)),
        submit_time=TAKEN_AT - 7200,
        start_time=TAKEN_AT - 3600,
        end_time=TAKEN_AT + end_s,
        time_limit_s=3600 + end_s,
    )


def _pending(job_id: int, chance: np.random.Generator) -> Job:
    gpus = int(chance.choice([0, 1, 1, 2, 4, 8, 16, 32]))
    gpu_type = TYPES[int(chance.integers(len(TYPES)))] if chance.random() < 0.5 else None
    counts = (GpuCount(gpu_type=gpu_type, count=gpus),) if gpus else ()
    per_node = gpus <= 8 and chance.random() < 0.5
    elastic = gpus and chance.random() < 0.1
    waited_s = float(chance.integers(0, 200_000))
    partition = PARTITIONS[int(chance.integers(len(PARTITIONS)))]
    gang = _gang(
        per_node=counts if per_node else (),
        per_job=() if per_node else counts,
        nodes_max=max(1, gpus // 8) if chance.random() < 0.5 else 4 * max(1, gpus // 8),
        cpus=max(1, gpus * 4),
        memory_mib_per_node=int(chance.choice([8_000, 64_000])),
    )
    return Job(
        job_id=job_id,
        state=JobState.PENDING,
        reason="Priority",
        name=f"train{job_id}",
        user=f"user{job_id % 500}",
        account=f"lab{job_id % 50}",
        partitions=(partition,),
        gang=gang,
        hints=_ELASTIC if elastic else _NO_HINTS,
        submit_time=TAKEN_AT - waited_s,
        eligible_time=TAKEN_AT - waited_s,
        time_limit_s=float(chance.choice([1800, 3600, 14_400, 86_400, 172_800])),
        priority=int(chance.integers(1, 9000)),
        held=bool(chance.random() < 0.05),
    )


@cache
def _gang(**asked: Any) -> GangRequest:
    """Share equal requests, as the readers do."""
    return GangRequest(**asked)
