"""Builds the table of what is ahead of each pending GPU job: jobs of higher priority, and running jobs."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import share_of_gpu
from advisor.domain.job import Job, tasks_of
from advisor.domain.snapshot import Snapshot
from advisor.features.columns import Columns
from advisor.features.queue import expected_limit_s, gpu_counts, gpu_shares, limits_s, slurms_order

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Columns):
    """GPUs and GPU seconds of some set of jobs, seen from each row; both `(n_jobs,)`."""

    gpus: Floats
    gpu_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogTable(Columns):
    """Pending GPU jobs, row by row, with what they ask for and what stands before them; NaN where not known.

    `ahead` are the pending GPU jobs of higher priority, whose array tasks count one by one; `running` jobs hold GPUs,
    for up to `gpu_s` more GPU seconds. GPU seconds count up to the time limit with `by_limits`, else up to a forecast
    run time. `eligible` is 0 for a job that waits for another job or for a time, else 1.
    """

    job_id: NDArray[np.int64]  # (n_jobs,)
    gpus: Floats  # (n_jobs,)
    limit_s: Floats  # (n_jobs,)
    eligible: Floats  # (n_jobs,)
    since_submit_s: Floats  # (n_jobs,)
    since_eligible_s: Floats  # (n_jobs,), 0 before the job is eligible
    begins_in_s: Floats  # (n_jobs,), until the begin time of the job, 0 if it has none
    ahead: Load
    ahead_in_partition: Load
    ahead_in_account: Load
    running: Load
    running_in_account: Load
    by_limits: bool = True


def backlog_table(snapshot: Snapshot, expected_s: Mapping[int, float] | None = None) -> BacklogTable:
    """Build the table of the pending GPU jobs of a snapshot, in the order in which Slurm considers them.

    `expected_s` maps job ids to how long a job will run from its start or, if it runs, from now on; time limits
    stand in for jobs that it does not name. GPUs are those asked for, as accounting has them, on which the models of
    start times are fitted. A held job is left out, as is one whose priority is unknown: neither has a
    place in the line. A job without any limit counts with the longest limit there is. Of several partitions the
    first counts. The row of an array stands for the first of its waiting tasks.
    """
    now = snapshot.taken_at
    unsorted = [job for job in snapshot.pending_gpu_jobs if job.priority and not job.held]
    order, running = slurms_order(unsorted), snapshot.running_gpu_jobs
    line = [unsorted[place] for place in order.tolist()]
    job_id = np.array([job.job_id for job in unsorted], dtype=np.int64)[order]
    submit_time = _floats([job.submit_time for job in unsorted])[order]
    gpus = _floats(gpu_counts(unsorted))[order]
    limit_s = _floats(limits_s(unsorted, snapshot))[order]
    left_s = _floats([_left_s(job, snapshot) for job in running])
    longest_s = max(np.nanmax(limit_s, initial=-np.inf), np.nanmax(left_s, initial=-np.inf))
    pending = _Work.of(
        # A size that the request does not determine is at least one GPU.
        np.where(np.isnan(gpus), 1.0, gpus)
        * gpu_shares(unsorted)[order]
        * _floats([1 if job.array is None else tasks_of(job) for job in unsorted])[order],
        _durations(line, limit_s, longest_s, expected_s),
    )
    held = _Work.of(_floats([_gpus_held(job) for job in running]), _durations(running, left_s, longest_s, expected_s))
    partition = _codes([job.partitions[:1] for job in unsorted])[order]
    account = _codes([job.account for job in (*unsorted, *running)])
    account = np.concatenate([account[: len(line)][order], account[len(line) :]])
    everybody = np.zeros(len(line) + len(running), dtype=np.int64)
    eligible_time = _floats([job.eligible_time for job in unsorted])[order]
    known = ~np.isnan(eligible_time)
    depends = np.array([bool(job.dependency) for job in unsorted], dtype=np.bool_)[order]
    eligible = (~depends & ~(known & (eligible_time > now))).astype(np.float64)
    return BacklogTable(
        job_id=job_id,
        gpus=gpus,
        limit_s=limit_s,
        eligible=eligible,
        since_submit_s=np.maximum(now - submit_time, 0.0),
        since_eligible_s=eligible * np.maximum(now - np.where(known, eligible_time, submit_time), 0.0),
        begins_in_s=np.where(known, np.maximum(eligible_time - now, 0.0), 0.0),
        ahead=pending.before(everybody[: len(line)]),
        ahead_in_partition=pending.before(partition),
        ahead_in_account=pending.before(account[: len(line)]),
        running=held.seen_from(everybody[: len(line)], everybody[len(line) :]),
        running_in_account=held.seen_from(account[: len(line)], account[len(line) :]),
        by_limits=expected_s is None,
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """The GPUs of jobs and their GPU seconds, job by job."""

    gpus: Floats
    gpu_s: Floats

    @classmethod
    def of(cls, gpus: Floats, duration_s: Floats) -> "_Work":
        return cls(gpus, gpus * duration_s)

    def before(self, codes: Codes) -> Load:
        """Return, for each job of a queue, the sums over the jobs before it with the same code."""
        return Load(gpus=_sum_before(self.gpus, codes), gpu_s=_sum_before(self.gpu_s, codes))

    def seen_from(self, line: Codes, codes: Codes) -> Load:
        """Return, for each job of a queue, the sums over the jobs here, `codes` `(n_these,)`, with the same code."""
        size = int(max(line.max(initial=-1), codes.max(initial=-1))) + 1
        gpus, gpu_s = (np.bincount(codes, weights, size).astype(np.float64) for weights in (self.gpus, self.gpu_s))
        return Load(gpus=gpus[line], gpu_s=gpu_s[line])


def _sum_before(amounts: Floats, codes: Codes) -> Floats:
    order = np.argsort(codes, kind="stable")
    before = np.cumsum(amounts[order]) - amounts[order]
    first = np.searchsorted(codes[order], codes[order])
    earlier = np.empty_like(before)
    # Rounding of the difference of sums must not make a sum negative.
    earlier[order] = np.maximum(before - before[first], 0.0)
    return earlier


def _durations(
    jobs: Sequence[Job], limit_s: Floats, longest_s: float, expected_s: Mapping[int, float] | None
) -> Floats:
    """Return the assumed run time of each job: the forecast, else the limit, else the longest limit."""
    longest = np.where(np.isnan(limit_s), longest_s if np.isfinite(longest_s) else np.nan, limit_s)
    if expected_s is None:
        return longest
    forecast_s = _floats([expected_s.get(job.job_id) for job in jobs])
    return np.where(np.isnan(forecast_s), longest, forecast_s)


def _left_s(job: Job, snapshot: Snapshot) -> float | None:
    """Return how long a running job can continue under its limit; None without a limit."""
    if job.end_time is not None:
        return max(0.0, job.end_time - snapshot.taken_at)
    limit_s = expected_limit_s(job, snapshot)
    if limit_s is None or job.start_time is None:
        return limit_s
    return max(0.0, job.start_time + limit_s - snapshot.taken_at)


def _gpus_held(job: Job) -> float:
    if job.allocation is not None and job.allocation.gpus:
        return sum(gpus.count * share_of_gpu(gpus.gpu_type) for gpus in job.allocation.gpus)
    return (job.gang.gpu_count or 1) * job.gang.gpu_share


def _floats(values: Sequence[float | None]) -> Floats:
    """Return values as an array; numpy reads None as NaN."""
    return np.array(values, dtype=np.float64)


def _codes(keys: Sequence[Hashable]) -> Codes:
    """Number keys in the order in which they first appear."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], dtype=np.int64)
