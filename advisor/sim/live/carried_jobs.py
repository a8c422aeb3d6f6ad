"""Carries the queue of plain Slurm over to another anchor: the jobs that it has elsewhere than the advised cluster.

A job that waits on plain Slurm alone waits in the model from the anchor on, and its GPUs become free. A job that runs
on plain Slurm alone starts in the model at the anchor, before all others, for the rest of its run time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job, JobState
from advisor.domain.snapshot import Snapshot
from advisor.sim.cluster import SlurmParameters
from advisor.sim.live.submitted_jobs import Stay, Submission, eligible_time

# Before all priorities of Slurm.
_FIRST: Final = 2**32
# Starts in the same second are the same.
_SAME_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainStay:
    """When a job ran on plain Slurm, up to an anchor; None for what had not come."""

    job_id: int
    start_time: float | None = None
    end_time: float | None = None

    @property
    def is_running(self) -> bool:
        """Whether the job ran at the anchor."""
        return self.start_time is not None and self.end_time is None


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinRow:
    """A row of the model: a job of the anchor or an arrival, with its stay in reality if it has started.

    `plain` is how it stood on plain Slurm at the anchor if that differs. `runs_at_anchor` says whether the row runs
    there in the model; a row that `gives_way` is a job of the advised cluster alone.
    """

    job: Job
    record: Submission
    stay: Stay | None
    compared: bool
    plain: PlainStay | None = None
    runs_at_anchor: bool = False
    gives_way: bool = False

    @property
    def is_carried_running(self) -> bool:
        """Whether the job runs on plain Slurm at the anchor, and not or from another instant on in reality."""
        return self.plain is not None and self.plain.is_running and not self.gives_way

    def change_s(self, anchor_time: float) -> float:
        """Return by how much longer the job runs in the model than in all, since it began there at another instant."""
        if not self.is_carried_running or self.plain is None or self.plain.start_time is None:
            return 0.0
        begin = self.stay.start_time if self.runs_at_anchor and self.stay else anchor_time
        return self.plain.start_time - begin


def as_pending(record: Submission) -> Job | None:
    """Return a job as it was submitted; None if it has not become eligible yet."""
    job = record.job
    if record.stays or record.left_time is not None:
        reason, held = "Priority", False
    else:
        reason, held = job.reason, job.held
        if job.dependency or reason in ("Dependency", "BeginTime"):
            return None
    return replace(
        job,
        state=JobState.PENDING,
        reason=reason,
        held=held,
        dependency="",
        eligible_time=eligible_time(job),
        start_time=None,
        end_time=None,
        allocation=None,
        array=None,
    )


def carried_snapshot(
    anchor: Snapshot,
    plain: Mapping[int, PlainStay],
    records: Mapping[int, Submission],
    parameters: SlurmParameters,
) -> Snapshot:
    """Return an anchor with the queue of plain Slurm; a job that waits there and runs in reality stands there twice."""
    jobs: list[Job] = []
    for job in anchor.jobs:
        stay = plain.get(job.job_id)
        if stay is None or (stay.is_running and not job.is_pending):
            jobs.append(job)
        elif not job.is_pending:
            # Completing jobs end at once.
            jobs.append(replace(job, state=JobState.COMPLETING))
    running = {job.job_id for job in anchor.jobs if not job.is_pending}
    for stay in plain.values():
        if stay.end_time is not None or (stay.is_running and stay.job_id in running):
            continue
        record = records[stay.job_id]
        waiting = as_pending(record)
        if waiting is not None:
            priority = _FIRST if stay.is_running else _aged(record, anchor.taken_at, parameters)
            jobs.append(replace(waiting, priority=priority))
    return replace(anchor, jobs=tuple(jobs))


def _aged(record: Submission, now: float, parameters: SlurmParameters) -> int | None:
    """Return the priority of a job with the age that it has gained since it was seen."""
    if not record.job.priority:
        return record.job.priority
    gained_s = min(now - eligible_time(record.job), parameters.priority_max_age_s) - min(
        record.seen_time - eligible_time(record.job), parameters.priority_max_age_s
    )
    grown = parameters.priority_weight_age * max(0.0, gained_s) / parameters.priority_max_age_s
    return record.job.priority + round(grown)


def carried_stays(
    rows: Sequence[TwinRow], start_time: NDArray[np.float64], end_time: NDArray[np.float64]
) -> Iterator[PlainStay]:
    """Yield how jobs stand on plain Slurm by the starts and ends of one draw, `(n_rows,)`, where reality differs.

    The tasks of arrays are not carried over.
    """
    for row, start, end in zip(rows, start_time.tolist(), end_time.tolist(), strict=True):
        if row.gives_way or row.record.tasks > 1 or not row.record.is_compared:
            continue
        known = row.plain.start_time if row.plain is not None and row.is_carried_running else None
        begun = known if known is not None else None if np.isnan(start) else start
        ended = None if np.isnan(end) else end
        stay = row.stay
        if begun is None:
            is_same = stay is None
        elif ended is not None:
            is_same = stay is not None and stay.has_ended
        else:
            is_same = stay is not None and not stay.has_ended and abs(stay.start_time - begun) < _SAME_S
        if not is_same:
            yield PlainStay(job_id=row.record.job.job_id, start_time=begun, end_time=ended)


def settled_rows(
    anchor: Snapshot, plain: Mapping[int, PlainStay], records: Mapping[int, Submission]
) -> Iterator[TwinRow]:
    """Yield rows beside the model: jobs that waited at the anchor and had ended on plain Slurm."""
    for job in anchor.pending:
        stay, record = plain.get(job.job_id), records[job.job_id]
        if stay is not None and stay.end_time is not None and record.left_time is None:
            real = next(iter(record.starts()), None)
            yield TwinRow(job=record.job, record=record, stay=real, compared=record.is_compared, plain=stay)


def still_settled(plain: Mapping[int, PlainStay], records: Mapping[int, Submission]) -> Iterator[PlainStay]:
    """Yield the jobs that had ended on plain Slurm by the anchor and have not in reality."""
    for stay in plain.values():
        if stay.end_time is not None and not records[stay.job_id].is_over and not records[stay.job_id].disputed:
            yield stay
