"""Notes from successive snapshots which jobs were submitted, with what, and when they started and ended.

The unsplit record of a job array stands for all its tasks, and the tasks that were split off it are noted there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from itertools import chain
from typing import Final

from advisor.domain.dataclass import dataclass
from advisor.domain.diagnosis import CONTENTION, Cause, causes_named
from advisor.domain.job import Job, JobState, tasks_of
from advisor.domain.lease import Lease
from advisor.domain.snapshot import Snapshot
from advisor.features.bars import barred

# Returns a job as it was submitted: without the changes that advice made to it.
Undo = Callable[[Job], Job]

# A job that waits for others or for a time arrives in the model when it has become eligible.
_KNOWN_WAITS: Final = CONTENTION | {Cause.DEPENDENCY, Cause.BEGIN_TIME}
# A job that fits for so long without a start waits for something that is not read; slurmctld's passes take less.
_LONGEST_FIT_S: Final = 60.0


def without_leases(job: Job, leases: Iterable[Lease]) -> Job:
    """Return a job with the values that it had before the changes of leases, where it still holds those of a change."""
    for lease in leases:
        change, undo = lease.action, lease.undo
        if change.job_id == job.job_id and undo.held_by(job) == undo.before == change.after:
            job = undo.applied_to(job)
    return job


class LeasesUndone:
    """Returns jobs as they were submitted, by the leases of the round."""

    def __init__(self) -> None:
        """Begin without leases."""
        self._by_job: Mapping[int, list[Lease]] = {}

    def learn(self, leases: Iterable[Lease]) -> None:
        """Use the leases of another round."""
        by_job = defaultdict[int, list[Lease]](list)
        for lease in leases:
            by_job[lease.job_id].append(lease)
        self._by_job = dict(by_job)

    def __call__(self, job: Job) -> Job:
        """Return a job without the changes of its leases."""
        return without_leases(job, self._by_job.get(job.job_id, ()))


@dataclass(slots=True, kw_only=True)
class Stay:
    """When a job or a task ran: it ended between `end_low` and `end_high`, infinity while it runs."""

    job_id: int
    start_time: float
    seen_time: float
    end_low: float = float("inf")
    end_high: float = float("inf")

    @property
    def has_ended(self) -> bool:
        """Whether the end has been seen."""
        return self.end_high < float("inf")


@dataclass(slots=True, kw_only=True)
class Submission:
    """A job as submitted; `seen_time` is when its priority was read, `left_time` when it left the queue unstarted.

    `fits_since` is from when on it was seen to wait although it would fit. A job is `disputed` once it has done so for
    long, or once its user has changed its request while it waited: it is unknown how long it would have waited without
    advice, and its user shall not decide that.
    """

    job: Job
    seen_time: float
    after_anchor: bool
    seen_pending: bool
    tasks: int = 1
    stays: dict[int, Stay] = field(default_factory=dict)
    left_time: float | None = None
    was_held_back: bool = False
    was_requeued: bool = False
    fits_since: float | None = None
    disputed: bool = False

    @property
    def is_compared(self) -> bool:
        """Whether its wait is held against one without advice."""
        return self.left_time is None and not self.disputed

    @property
    def in_doubt(self) -> bool:
        """Whether it can have waited for something that the model does not know."""
        return self.was_held_back or self.was_requeued or bool(self.job.gang.uncounted)

    def starts(self) -> list[Stay]:
        """Return the stays in the order of their starts."""
        return sorted(self.stays.values(), key=lambda stay: stay.start_time)

    @property
    def is_over(self) -> bool:
        """Whether all of the job has left the queue."""
        return self.left_time is not None or (
            len(self.stays) >= self.tasks and all(stay.has_ended for stay in self.stays.values())
        )


class SubmittedJobs:
    """The jobs of an anchor and those submitted since."""

    def __init__(self, anchor: Snapshot, undo: Undo, earlier: Mapping[int, Submission]) -> None:
        """Note the jobs of the anchor; `undo` returns a job as it was submitted.

        What made jobs of an `earlier` anchor doubtful holds on.
        """
        self._undo = undo
        self._earlier = earlier
        self._seen_at = anchor.taken_at
        self.by_id: dict[int, Submission] = {}
        self._in_queue: set[int] = set()
        self._record_by_array: dict[int, int] = {}
        self.longest_gap_s = 0.0
        self.restarts = 0
        self._fitting: frozenset[int] = frozenset()
        # Running tasks first: they are rows of their own in the model, and no part of what still waits.
        for job in sorted(anchor.jobs, key=lambda job: job.is_pending):
            self._add(job, anchor.taken_at, after_anchor=False)
        self._earlier = {}
        self._note_fitting(anchor)

    def observe(self, snapshot: Snapshot) -> None:
        """Note what has changed since the last snapshot; an older one is ignored."""
        now = snapshot.taken_at
        if now <= self._seen_at:
            return
        self.longest_gap_s = max(self.longest_gap_s, now - self._seen_at)
        present = set()
        # The record of an array comes before the tasks that were split off it.
        for job in sorted(snapshot.jobs, key=lambda job: (not job.is_pending, job.job_id)):
            present.add(job.job_id)
            record = self._record_of(job)
            if record is None:
                self._add(job, now, after_anchor=True)
            else:
                self._update(record, job, now)
        for job_id in [job_id for job_id in self._in_queue if not snapshot.leaves_out(job_id)]:
            record = self.by_id[job_id]
            self._note_departures(job_id, record, present, now)
            if record.is_over and job_id not in present:
                self._in_queue.discard(job_id)
        self._note_fitting(snapshot)
        self._seen_at = now

    def _note_fitting(self, snapshot: Snapshot) -> None:
        """Note which jobs wait although they would fit by all that is read."""
        fitting, now = barred(snapshot), snapshot.taken_at
        for job_id in self._fitting | fitting:
            record = self.by_id.get(job_id)
            if record is None:
                continue
            if job_id not in fitting:
                record.fits_since = None
            elif record.fits_since is None:
                record.fits_since = now
            elif now - record.fits_since >= _LONGEST_FIT_S:
                record.disputed = True
        self._fitting = fitting

    def _record_of(self, job: Job) -> Submission | None:
        if job.job_id in self.by_id:
            return self.by_id[job.job_id]
        array_id = job.array.array_job_id if job.array else None
        return self.by_id.get(self._record_by_array.get(array_id, 0)) if array_id else None

    def _add(self, job: Job, now: float, *, after_anchor: bool) -> None:
        submitted = self._undo(job)
        record = self.by_id[job.job_id] = Submission(
            job=submitted,
            seen_time=now,
            after_anchor=after_anchor,
            seen_pending=job.is_pending,
            tasks=tasks_of(job) if job.is_pending else 1,
        )
        if (before := self._earlier.get(job.job_id)) is not None:
            record.disputed, record.fits_since = before.disputed, before.fits_since
            record.was_held_back, record.was_requeued = before.was_held_back, before.was_requeued
        if job.array and job.is_pending and job.array.task_id is None:
            self._record_by_array[job.array.array_job_id] = job.job_id
        self._update(record, job, now)

    def _update(self, record: Submission, job: Job, now: float) -> None:
        self._in_queue.add(record.job.job_id)
        record.left_time = None
        if not job.is_pending:
            self._note_stay(record, job, now)
            return
        if job.job_id in record.stays and (job.array is None or job.array.task_id is not None):
            # A job that was requeued starts once more.
            del record.stays[job.job_id]
            self.restarts += 1
            record.was_requeued = True
        submitted = self._undo(job)
        # With a lift of ours out, the nice is that from before it.
        record.disputed |= _request_of(submitted) != _request_of(record.job) or (
            job.nice == submitted.nice != record.job.nice
        )
        if job.job_id != record.job.job_id:
            return
        record.tasks = max(record.tasks, tasks_of(job) + len(record.stays))
        record.was_held_back |= bool(causes_named(job.reason) - _KNOWN_WAITS)
        record.job = _updated(record.job, submitted)

    @staticmethod
    def _note_stay(record: Submission, job: Job, now: float) -> None:
        start_time = min(now, job.submit_time if job.start_time is None else job.start_time)
        stay = record.stays.setdefault(job.job_id, Stay(job_id=job.job_id, start_time=start_time, seen_time=now))
        record.tasks = max(record.tasks, len(record.stays))
        if stay.has_ended:
            return
        if job.state is JobState.COMPLETING:
            ended = now if job.end_time is None else min(now, job.end_time)
            stay.end_low = stay.end_high = max(ended, start_time)
        stay.seen_time = now

    @staticmethod
    def _note_departures(job_id: int, record: Submission, present: set[int], now: float) -> None:
        for stay_id, stay in record.stays.items():
            if stay_id not in present and not stay.has_ended:
                stay.end_low, stay.end_high = stay.seen_time, now
        if job_id not in present and not record.stays and record.left_time is None:
            record.left_time = now

    @property
    def in_whole_seconds(self) -> bool:
        """Whether submissions and starts are known to the second alone, as Slurm shows them."""
        records = self.by_id.values()
        starts = (stay.start_time for record in records for stay in record.stays.values())
        return all(instant.is_integer() for instant in chain((r.job.submit_time for r in records), starts))

    def after_anchor(self) -> list[Submission]:
        """Return the jobs that were submitted after the anchor, by submit time and id."""
        later = (record for record in self.by_id.values() if record.after_anchor)
        return sorted(later, key=lambda record: (eligible_time(record.job), record.job.job_id))

    def pending_at_anchor(self, anchor: Snapshot) -> Iterator[tuple[Job, Submission]]:
        """Yield the jobs that were pending in the anchor, as they stand there, with what was seen of them since."""
        for job in anchor.pending:
            yield job, self.by_id[job.job_id]


def eligible_time(job: Job) -> float:
    """Return from when on a job waits: its submission, or later if it was not eligible then."""
    return max(job.submit_time, job.eligible_time or job.submit_time)


# What a user can change of a pending job, and what decides whether it can start.
_LIMITS_AND_PLACE: Final = ("time_limit_s", "time_min_s", "partitions", "qos")
_ASKED: Final = ("gang", "nice", *_LIMITS_AND_PLACE)
_GATES: Final = ("reason", "eligible_time", "dependency", "held")


def _request_of(job: Job) -> tuple[object, ...]:
    """Return what a job asks for beside its nice; the most nodes of one that leaves them open are Slurm's estimate."""
    gang = replace(job.gang, nodes_max=None) if job.gang.nodes_open else job.gang
    return gang, *(getattr(job, name) for name in _LIMITS_AND_PLACE)


def _updated(known: Job, seen: Job) -> Job:
    """Return a pending job with what its user has changed since, and with the priority that it began with."""
    priority = known.priority or seen.priority
    if known.priority and seen.nice != known.nice:
        priority = max(1, known.priority + known.nice - seen.nice)
    is_same = all(getattr(known, name) == getattr(seen, name) for name in _ASKED + _GATES)
    return known if is_same and known.priority == priority else replace(seen, priority=priority, array=known.array)
