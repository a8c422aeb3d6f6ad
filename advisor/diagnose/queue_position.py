"""Counts the jobs ahead of a job in the order in which Slurm considers pending jobs."""

from dataclasses import dataclass

import numpy as np

from advisor.diagnose.inquiry import Inquiry
from advisor.diagnose.requests import gpus_by_type, tasks_of
from advisor.domain.diagnosis import Cause
from advisor.domain.gang import whole_gpus
from advisor.domain.job import Job
from advisor.domain.slurm_reasons import CONTENTION, causes_named
from advisor.features.queue import slurms_place, tier_by_partition

# A job that Slurm leaves pending for any other reason delays no other job.
_COMPETING = CONTENTION | {Cause.UNKNOWN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """The pending jobs that may start on a job's nodes and come before it; arrays count with all waiting tasks.

    `own_jobs` are those of the job's own user, `users` the other users of the jobs ahead. `gpus` counts what requests
    tell.
    `unknown_priorities` are jobs whose priority, and so whose place, is unknown.
    """

    jobs: int
    own_jobs: int
    users: int
    gpu_jobs: int
    gpus: int
    highest_priority: int
    unknown_priorities: int


def ahead_of(inquiry: Inquiry) -> Ahead:
    """Count the jobs ahead of the job: a higher partition tier, then priority, submit time and id decide."""
    tiers = _tiers(inquiry)
    mine = inquiry.job
    my_place = slurms_place(mine, max((partition.priority_tier for partition in inquiry.partitions), default=0))
    ahead: list[Job] = []
    unknown = 0
    tier_by_partitions: dict[tuple[str, ...], int | None] = {}
    competing = {reason for reason in {job.reason for job in inquiry.snapshot.jobs} if _competes(reason)}
    for job in inquiry.snapshot.jobs:
        if job.job_id == mine.job_id or job.reason not in competing or not _may_start(job, inquiry.snapshot.taken_at):
            continue
        if job.partitions not in tier_by_partitions:
            shared = [tiers[name] for name in job.partitions if name in tiers]
            tier_by_partitions[job.partitions] = max(shared, default=None)
        tier = tier_by_partitions[job.partitions]
        if tier is None:
            continue
        if job.priority is None:
            unknown += tasks_of(job)
        elif mine.priority and slurms_place(job, tier) < my_place:
            ahead.append(job)
    return Ahead(
        jobs=sum(tasks_of(job) for job in ahead),
        own_jobs=sum(tasks_of(job) for job in ahead if job.user == mine.user),
        users=len({job.user for job in ahead} - {mine.user}),
        gpu_jobs=sum(tasks_of(job) for job in ahead if job.gang.wants_gpus),
        gpus=whole_gpus(
            (gpu_type, tasks_of(job) * count)
            for job in ahead
            for gpu_type, count in (gpus_by_type(job.gang) or {}).items()
        ),
        highest_priority=max((job.priority or 0 for job in ahead), default=0),
        unknown_priorities=unknown,
    )


def _tiers(inquiry: Inquiry) -> dict[str, int]:
    """Map each partition that shares nodes with the job's to its priority tier."""
    shares = np.asarray((inquiry.table.partition_member & inquiry.nodes).any(axis=1))
    tiers = tier_by_partition(inquiry.snapshot)
    return {name: tiers[name] for name, shared in zip(inquiry.table.partition_names, shares, strict=True) if shared}


def _competes(reason: str) -> bool:
    named = causes_named(reason)
    return not named or not named.isdisjoint(_COMPETING)


def _may_start(job: Job, now: float) -> bool:
    """Return whether a pending job would start as soon as it fits; one that is held has the priority 0."""
    return (
        job.is_pending
        and not job.held
        and job.priority != 0
        and not job.dependency
        and not (job.eligible_time is not None and job.eligible_time > now)
    )
