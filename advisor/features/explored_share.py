"""Counts the GPU-time that gangs spend on places that were tried to learn from them, and what is left for more.

All figures err on the side of too little exploration. A gang counts with its time limit, which Slurm enforces, at once
and in full: a forecast could be wrong, and is learnt from what users submit. It counts against what running jobs have
held within the window; jobs that have ended held more.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from advisor.domain.job import Job, JobState
from advisor.domain.lease import Lease
from advisor.domain.snapshot import Snapshot

# The QOS that Slurm gives to jobs that ask for none.
USUAL_QOS: Final = frozenset({"", "normal"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploredShare:
    """The GPU-seconds that can be explored within the window, and those that have been."""

    allowed_gpu_s: float = 0.0
    used_gpu_s: float = 0.0

    def holds(self, gpu_s: float) -> bool:
        """Return whether so much more can be explored."""
        return gpu_s > 0.0 and self.used_gpu_s + gpu_s <= self.allowed_gpu_s

    def used_ratio(self, gpu_s: float = 0.0) -> float:
        """Return the share that is used up, with some more GPU-seconds; 1 where nothing is allowed."""
        return (self.used_gpu_s + gpu_s) / self.allowed_gpu_s if self.allowed_gpu_s > 0.0 else 1.0


NOTHING_ALLOWED: Final = ExploredShare()


def explored_share(snapshot: Snapshot, leases: Iterable[Lease], *, ratio: float, window_s: float) -> ExploredShare:
    """Return what can be explored now; `ratio` is the share of the GPU-time of running jobs within the window."""
    if not ratio > 0.0:
        return NOTHING_ALLOWED
    since = snapshot.taken_at - window_s
    used_gpu_s = sum(lease.explored_gpu_s for lease in leases if lease.ended_time is None or lease.ended_time > since)
    return ExploredShare(allowed_gpu_s=ratio * held_gpu_s(snapshot, window_s), used_gpu_s=used_gpu_s)


def held_gpu_s(snapshot: Snapshot, window_s: float) -> float:
    """Return the GPU-seconds that the running jobs of a snapshot have held within a window."""
    return sum(
        _gpus(job) * min(max(snapshot.taken_at - job.start_time, 0.0), window_s)
        for job in snapshot.jobs
        if job.state is JobState.RUNNING and job.start_time is not None
    )


def most_gpu_s(job: Job) -> float | None:
    """Return the GPU-seconds that a pending job can hold; None where that is not known, as without a time limit."""
    gpus = None if job.gang.exclusive else job.gang.gpu_count
    return None if gpus is None or job.time_limit_s is None else gpus * job.gang.gpu_share * job.time_limit_s


def can_be_tried_on(job: Job) -> bool:
    """Return whether places can be tried with a job, or beside it: it names no QOS, no reservation and no wish."""
    return job.qos in USUAL_QOS and not job.reservation and not job.hints.opted_out


def explored_jobs(leases: Iterable[Lease]) -> frozenset[int]:
    """Return the jobs that are, or could be, on a place that was tried."""
    return frozenset(lease.job_id for lease in leases if lease.explored_gpu_s > 0.0)


def _gpus(job: Job) -> int:
    return sum(gpus.count for gpus in job.allocation.gpus) if job.allocation is not None else 0
