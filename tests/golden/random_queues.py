"""Small clusters with queues drawn by a seed: every kind of request, hint, lease and forecast."""

from dataclasses import replace

import numpy as np

from advisor.domain.actions import SetNice
from advisor.domain.forecast import Forecasts, Interval, JobForecast, Placement, RunTime
from advisor.domain.gang import GangRequest, GpuCount, GpuScope, SwitchRequest
from advisor.domain.job import ArrayRecord, Job, Sensitivity
from advisor.domain.lease import Lease, LeaseState, intended
from advisor.domain.memory import Wait
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from tests.builders import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
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

NODE_NAMES = tuple(f"n{number:02d}" for number in range(1, 9))
SIZES = (1, 1, 2, 4, 8)
PARAMETERS = {"max_switch_wait": "86400", "time_min_as_soft_limit": ""}


def snapshot(rng: np.random.Generator) -> Snapshot:
    """Draw a cluster of eight nodes under two leaves with up to thirty jobs."""
    types = ["h100" if rng.random() < 0.2 else "a100" for _ in NODE_NAMES]
    busy = float(rng.random())
    used = [8 if rng.random() < busy else int(rng.choice((0, 2, 4, 6))) for _ in NODE_NAMES]
    running = [
        make_job(
            100 + place,
            gang=make_gang(count, gpu_type=types[place]),
            running_on=[NODE_NAMES[place]],
            started_ago_s=float(rng.integers(60, 86_400)),
            time_limit_s=float(rng.choice((HOUR_S, DAY_S, 2 * DAY_S))),
            hints=make_hints(checkpoint_s=300.0) if rng.random() < 0.3 else make_hints(),
            requeueable=bool(rng.random() < 0.5),
        )
        for place, count in enumerate(used)
        if count
    ]
    nodes = [
        make_node(
            name,
            gpu_type=types[place],
            used=used[place],
            cpus_used=used[place],
            flags=("DRAIN",) if rng.random() < 0.05 else (),
            partitions=("gpu", "short") if place >= 4 else ("gpu",),
        )
        for place, name in enumerate(NODE_NAMES)
    ]
    pending = [_pending(rng, number + 1) for number in range(int(rng.integers(4, 30)))]
    return make_snapshot(
        [*pending, *running],
        nodes,
        partitions=[
            make_partition("gpu", nodes=NODE_NAMES),
            make_partition("short", nodes=NODE_NAMES[4:], max_time_s=4 * HOUR_S, priority_tier=int(rng.integers(1, 3))),
        ],
        topology=make_topology({"leaf1": NODE_NAMES[:4], "leaf2": NODE_NAMES[4:]}),
        config=make_config(scheduler_parameters=PARAMETERS if rng.random() < 0.5 else {"max_switch_wait": "86400"}),
    )


def _pending(rng: np.random.Generator, job_id: int) -> Job:
    gang = _gang(rng)
    total = gang.gpu_count or 1
    hints = make_hints(
        gpus=(max(1, total // 4), 2 * total) if rng.random() < 0.5 else None,
        checkpoint_s=300.0 if rng.random() < 0.5 else None,
        sensitivity=Sensitivity.HIGH if rng.random() < 0.2 else None,
        opted_out=bool(rng.random() < 0.05),
    )
    job = make_job(
        job_id,
        gang=gang,
        hints=hints,
        user=f"u{rng.integers(4)}",
        account=f"a{rng.integers(2)}",
        partitions=("short",) if rng.random() < 0.2 else ("gpu",),
        priority=int(rng.integers(1, 60) * 10),
        submitted_ago_s=float(rng.choice((30.0, HOUR_S, HOUR_S, 3 * HOUR_S, 6 * HOUR_S, 3 * DAY_S))),
        time_limit_s=float(rng.choice((10 * MINUTE_S, HOUR_S, HOUR_S, 4 * HOUR_S, DAY_S)))
        if rng.random() < 0.95
        else None,
        nice=10 if rng.random() < 0.1 else 0,
        reason="QOSMaxJobsPerUserLimit" if rng.random() < 0.1 else "Priority",
    )
    if rng.random() < 0.1:
        job = replace(job, array=ArrayRecord(array_job_id=job_id, waiting="1-6"))
    return replace(job, held=True, priority=0) if rng.random() < 0.05 else job


def _gang(rng: np.random.Generator) -> GangRequest:
    size = int(rng.choice(SIZES))
    gpu_type = "a100" if rng.random() < 0.5 else None
    switches = SwitchRequest(count=1, max_wait_s=600.0) if rng.random() < 0.05 else None
    match int(rng.integers(4)):
        case 0:
            nodes = int(rng.choice((1, 2, 4)))
            counts = (GpuCount(gpu_type=gpu_type, count=size),)
            return GangRequest(per_node=counts, nodes_min=nodes, nodes_max=nodes, cpus=nodes, switches=switches)
        case 1:
            return make_gang(2 * size, gpu_type=gpu_type, nodes_min=1, nodes_max=4, tasks=2 * size, cpus=2 * size)
        case 2:
            return make_gang(1, scope=GpuScope.TASK, tasks=size, cpus=size, nodes_max=2, switches=switches)
        case _:
            return make_gang(size, gpu_type=gpu_type, nodes_max=1, cpus=size)


def forecasts(rng: np.random.Generator, seen: Snapshot) -> Forecasts:
    """Draw forecasts for some of the jobs."""
    return Forecasts(
        by_job={job.job_id: _forecast(rng, job) for job in seen.jobs if rng.random() < 0.7},
        models=("run_time test-1",),
    )


def _forecast(rng: np.random.Generator, job: Job) -> JobForecast:
    median_s = float(rng.integers(60, 72_000))
    spread = float(rng.uniform(1.0, 3.0))
    run_time = RunTime(
        interval_s=Interval(low=median_s / spread, median=median_s, high=median_s * spread),
        mean_s=median_s * float(rng.uniform(0.9, 1.2)) if spread > 1.2 else median_s,
    )
    gpus = job.gang.gpu_count or 1
    speeds = {
        Placement(gpus=gpus, tier=tier): _around(rng, slower)
        for tier, slower in ((LocalityTier.NODE, 1.0), (LocalityTier.LEAF, 0.9), (LocalityTier.SPINE, 0.6))
    }
    return JobForecast(run_time=run_time, speed_by_placement=speeds if rng.random() < 0.5 else {})


def _around(rng: np.random.Generator, speed: float) -> Interval:
    width = float(rng.uniform(1.0, 1.3))
    return Interval(low=speed / width, median=speed, high=speed * width)


def leases(rng: np.random.Generator, seen: Snapshot) -> tuple[Lease, ...]:
    """Draw changes that are out or were."""
    out = []
    for job in seen.pending:
        if rng.random() < 0.05:
            action = SetNice(job_id=job.job_id, before=job.nice, after=job.nice + 20)
            lease = intended(action, TAKEN_AT - 1200.0, after_s=float(rng.choice((600.0, 3600.0))), job=job)
            out.append(replace(lease, state=LeaseState.OUT, added_delay_s=float(rng.integers(0, 7200))))
    return tuple(out)


def waits(rng: np.random.Generator) -> tuple[Wait, ...]:
    """Draw what was seen of gangs that waited for closer places."""
    return tuple(
        Wait(
            gpus=int(rng.choice(SIZES)),
            tier=LocalityTier.NODE if rng.random() < 0.5 else LocalityTier.LEAF,
            waited_s=float(rng.integers(60, 7200)),
            got=bool(rng.random() < 0.7),
            ended_time=TAKEN_AT - float(rng.integers(60, 86_400)),
        )
        for _ in range(int(rng.integers(0, 8)))
    )
