"""Counts the jobs ahead of a job in the order in which Slurm considers pending jobs."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from advisor.diagnose.inquiry import Inquiry
from advisor.diagnose.requests import gpus_by_type, tasks_of
from advisor.domain.diagnosis import Cause
from advisor.domain.gang import whole_gpus
from advisor.domain.job import Job
from advisor.domain.slurm_reasons import CONTENTION, causes_named
from advisor.features.nodes import Flags, gpus_of
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
    tiers = tier_by_partition(inquiry.snapshot)
    mine = inquiry.job
    my_place = slurms_place(mine, max((partition.priority_tier for partition in inquiry.partitions), default=0))
    ahead: list[Job] = []
    unknown = 0
    tier_by_request: dict[tuple[tuple[str, ...], str | None, bool], int | None] = {}
    competing = {reason for reason in {job.reason for job in inquiry.snapshot.jobs} if _competes(reason)}
    for job in inquiry.snapshot.jobs:
        if job.job_id == mine.job_id or job.reason not in competing or not _may_start(job, inquiry.snapshot.taken_at):
            continue
        request = (job.partitions, job.gang.gpu_type, job.gang.wants_gpus)
        if request not in tier_by_request:
            shared = [tiers[name] for name in _partitions_shared(inquiry, job) if name in tiers]
            tier_by_request[request] = max(shared, default=None)
        tier = tier_by_request[request]
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


def _partitions_shared(inquiry: Inquiry, other: Job) -> Iterator[str]:
    """Yield the partitions of another job through which it can take nodes that the job can use, or its own.

    In its own partitions slurmctld starts a job after those ahead, whatever they ask for, except by backfill.
    """
    nodes = inquiry.nodes & _with_gpus(inquiry, inquiry.job) & _with_gpus(inquiry, other)
    for name, member in zip(inquiry.table.partition_names, inquiry.table.partition_member, strict=True):
        if name in other.partitions and (name in inquiry.job.partitions or (member & nodes).any()):
            yield name


def _with_gpus(inquiry: Inquiry, job: Job) -> Flags:
    """Return the nodes with GPUs that a job asks for, all for a job without: `(n_nodes,)`."""
    table = inquiry.table
    if not job.gang.wants_gpus:
        return np.ones(len(table.names), dtype=np.bool_)
    return np.asarray(gpus_of(table.gpu_types, table.gpus_total, job.gang.gpu_type) > 0)


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
