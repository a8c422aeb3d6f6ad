"""Reads polls of a queue, and when the jobs in them started, from the journal of the daemon."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job, JobState
from advisor.domain.outcome import JobOutcome
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import DAY_S
from advisor.errors import JournalError
from advisor.features.backlog import BacklogTable, backlog_table
from advisor.fit.start_time_fit import Polls, bursts
from advisor.journal import SqliteJournal
from advisor.journal.cycles import POLL_S

# Older polls would weigh less than a hundredth of the newest.
MOST_DAYS: Final = 28
# Of a longer queue rows are taken at even distances, so that a long queue does not take all the time of the fit.
MOST_ROWS_OF_POLL: Final = 400
# A job starts while the queue is read, so that a start can lie a little before the time of its poll.
_SLACK_S: Final = 60.0
_STARTED: Final = (JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING)

_BOUND = "wait for another job or a reservation"
_VANISHED = "left the queue and were not seen to start"
_SPARED = "not taken of long queues"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPolls:
    """The polls of a journal; `left_out` counts rows by reason, `pending` is of jobs that did not start by the end."""

    polls: Polls
    cycles: int
    pending: int
    left_out: Mapping[str, int]


def read_journal_polls(
    journal: SqliteJournal, *, progress: Callable[[int, int], None] = lambda *_: None
) -> JournalPolls:
    """Return the polls of the last `MOST_DAYS` of a journal, `POLL_S` apart, each job of each poll with its wait.

    Snapshots are read one by one. `progress` is called with the number of polls read, and of all. Raises
    `JournalError` if there is no poll, or if another program has changed the journal.
    """
    checked = journal.verify()
    if not checked.is_intact:
        tables = ", ".join(checked.tables) or f"the audit from row {checked.broken} on"
        raise JournalError(f"{journal.path}: another program has changed {tables}: not learnt from")
    ids, line = poll_ids(journal.recorded_times()), _Line(journal.outcomes_of)
    for number, recorded in enumerate(journal.recorded_cycles(ids), start=1):
        line.see(recorded.snapshot)
        progress(number, len(ids))
    return line.read(str(journal.path))


def poll_ids(cycles: Iterable[tuple[int, float]]) -> tuple[int, ...]:
    """Return the ids of the cycles, of ids and times, that are `POLL_S` or more apart, the newest first chosen."""
    chosen: list[tuple[int, float]] = []
    # From the newest on, so that a clock that was ahead for a while costs its own cycles only.
    for cycle_id, taken_at in sorted(cycles, reverse=True):
        if not chosen or chosen[0][1] - MOST_DAYS * DAY_S <= taken_at <= chosen[-1][1] - POLL_S:
            chosen.append((cycle_id, taken_at))
    return tuple(cycle_id for cycle_id, _ in reversed(chosen))


@dataclass(slots=True)
class _Waiting:
    """A job or an array that was pending in the last poll, and the rows that wait for its start."""

    job: Job
    rows: list[int]


class _Line:
    """Follows the jobs of polls, oldest first, until they are seen to start."""

    def __init__(self, outcomes_of: Callable[[Iterable[int]], tuple[JobOutcome, ...]]) -> None:
        self._outcomes_of = outcomes_of
        self._waiting: dict[int, _Waiting] = {}
        self._tables: list[BacklogTable] = []
        self._poll_time: list[float] = []
        self._submit_time: list[float] = []
        self._wait_s: list[float] = []
        self._account: list[str] = []
        self._partition: list[str] = []
        self._is_gone: list[bool] = []
        self._left_out = Counter[str]()
        self._cycles = 0

    def see(self, snapshot: Snapshot) -> None:
        """Take in one poll."""
        self._cycles += 1
        self._end(snapshot)
        self._begin(snapshot)

    def read(self, name: str) -> JournalPolls:
        """Return all rows but those whose jobs left the queue without a known start; raises `JournalError` for none."""
        if not self._wait_s:
            raise JournalError(
                f"{name}: no recorded cycle has a pending GPU job: the daemon records one cycle in "
                f"{POLL_S / 3600:.0f} hours; fit start times after some days"
            )
        is_gone = np.array(self._is_gone, dtype=np.bool_)
        table = BacklogTable.join(self._tables)
        poll_time, submit_time = np.array(self._poll_time), np.array(self._submit_time)
        account = np.unique(self._account, return_inverse=True)[1].astype(np.int64)
        polls = Polls(
            table=table,
            poll_time=poll_time,
            wait_s=np.array(self._wait_s),
            burst=bursts(poll_time, submit_time, account, table.gpus, table.limit_s),
            account=tuple(self._account),
            partition=tuple(self._partition),
        )
        left_out = Counter(self._left_out)
        left_out[_VANISHED] += int(is_gone.sum())
        kept = polls.take(~is_gone)
        return JournalPolls(
            polls=kept,
            cycles=self._cycles,
            pending=int(np.isnan(kept.wait_s).sum()),
            left_out={why: count for why, count in left_out.items() if count},
        )

    def _begin(self, snapshot: Snapshot) -> None:
        """Add the rows of a poll."""
        table = backlog_table(snapshot)
        jobs = [snapshot.jobs_by_id[job_id] for job_id in table.job_id.tolist()]
        is_free = np.array([not (job.dependency or job.reservation) for job in jobs], dtype=np.bool_)
        rows = evenly(np.flatnonzero(is_free), MOST_ROWS_OF_POLL)
        self._left_out[_BOUND] += int((~is_free).sum())
        self._left_out[_SPARED] += int(is_free.sum()) - len(rows)
        for row in rows.tolist():
            job = jobs[row]
            waiting = self._waiting.setdefault(job.job_id, _Waiting(job=job, rows=[]))
            waiting.job = job
            waiting.rows.append(len(self._wait_s))
            self._poll_time.append(snapshot.taken_at)
            self._submit_time.append(job.submit_time)
            self._wait_s.append(np.nan)
            self._is_gone.append(False)
            self._account.append(job.account)
            self._partition.append(job.partitions[0] if job.partitions else "")
        self._tables.append(table.take(rows))

    def _end(self, snapshot: Snapshot) -> None:
        """Settle the rows of the jobs that are not pending any more as they were."""
        tasks = _task_starts(snapshot)
        over: dict[int, float | None] = {}
        gone: dict[int, Job] = {}
        for job_id, waiting in self._waiting.items():
            now = snapshot.jobs_by_id.get(job_id)
            if _is_array(waiting.job):
                if not _is_unchanged(waiting.job, now, snapshot):
                    over[job_id] = min(
                        (time for time in tasks.get(job_id, ()) if time >= self._last_poll(waiting) - _SLACK_S),
                        default=None,
                    )
            elif now is not None and now.user == waiting.job.user and now.state in _STARTED:
                over[job_id] = now.start_time
            elif not _is_unchanged(waiting.job, now, snapshot):
                gone[job_id] = waiting.job
        if gone:
            over |= self._starts_of(gone, snapshot.taken_at)
        for job_id, start_time in over.items():
            self._settle(self._waiting.pop(job_id), start_time, snapshot.taken_at)

    def _last_poll(self, waiting: _Waiting) -> float:
        return self._poll_time[waiting.rows[-1]]

    def _settle(self, waiting: _Waiting, start_time: float | None, now: float) -> None:
        for row in waiting.rows:
            wait_s = np.nan if start_time is None else start_time - self._poll_time[row]
            if start_time is not None and start_time <= now + _SLACK_S and wait_s >= -_SLACK_S:
                self._wait_s[row] = max(0.0, wait_s)
            else:
                self._is_gone[row] = True

    def _starts_of(self, gone: Mapping[int, Job], now: float) -> dict[int, float | None]:
        """Return the starts, as the daemon followed the jobs, of those that have left the queue or were requeued."""
        starts: dict[int, float | None] = dict.fromkeys(gone)
        for outcome in self._outcomes_of(gone):
            job = gone[outcome.job_id]
            polled = self._last_poll(self._waiting[job.job_id])
            if outcome.user != job.user or not outcome.submit_time <= polled:
                continue
            # The last start is the first one after the poll if there was one requeue at most.
            times = (outcome.start_time, outcome.last_start_time if outcome.requeues <= 1 else None)
            after = [time for time in times if time is not None and polled - _SLACK_S <= time <= now + _SLACK_S]
            if after:
                starts[job.job_id] = min(after)
        return starts


def evenly(rows: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Return at most `most` rows, at even distances, in order."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).round().astype(np.intp)]


def _is_array(job: Job) -> bool:
    """Return whether a record stands for waiting tasks of an array."""
    return job.array is not None and job.array.task_id is None


def _is_unchanged(before: Job, now: Job | None, snapshot: Snapshot) -> bool:
    """Return whether a pending job, or as many tasks of an array, still waits, or could not be read this time."""
    if now is None:
        return snapshot.leaves_out(before.job_id)
    if not now.is_pending or now.user != before.user or now.submit_time != before.submit_time:
        return False
    return not _is_array(before) or now.array == before.array


def _task_starts(snapshot: Snapshot) -> dict[int, list[float]]:
    """Return the starts of the tasks that run, by the id of their array."""
    starts: dict[int, list[float]] = {}
    for job in snapshot.jobs:
        if job.array is not None and job.state in _STARTED and job.start_time is not None:
            starts.setdefault(job.array.array_job_id, []).append(job.start_time)
    return starts
