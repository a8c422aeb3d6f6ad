"""Forecasts the run times of a queue, round after round, and notices the jobs that ended in between, to learn from."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice, repeat

import numpy as np

from advisor.domain.forecast import RunTime
from advisor.domain.gang import GangRequest
from advisor.domain.job import LATEST_TIME, Job
from advisor.domain.outcome import LONGEST_GAP_S
from advisor.domain.snapshot import Snapshot
from advisor.features.queue import limits_s
from advisor.predict.history import Keys, keys_of
from advisor.predict.intervals import listed
from advisor.predict.memo import BATCH, Memo
from advisor.predict.run_time import Drawn, EndedJobs, RunTimeForecaster, RunTimeTable
from advisor.predict.run_time_features import wait_reached_s

# All that the curve of a job depends on, beside its history: its request with the time limit in seconds, its
# submission, and the last step that its wait reached.
_Asked = tuple[str, str, str, tuple[str, ...], str, GangRequest, float | None, float, float]
# Without a history, fewer things: its GPUs, CPUs, nodes, memory and time limit, and that step. Many jobs are alike.
_Alike = tuple[float | None, ...]
# Either, the stamps of the history, and the levels at which the run time is read.
_Seen = tuple[_Asked | _Alike, int, int, bytes]


def run_time_table(jobs: Sequence[Job], snapshot: Snapshot) -> RunTimeTable:
    """Return jobs as rows of the run-time model; a running job is forecast from its elapsed time."""

    def numbers(values: Sequence[float | None]) -> np.ndarray:
        return np.array(values, dtype=np.float64)  # numpy reads None as NaN

    gangs = [job.gang for job in jobs]
    return RunTimeTable(
        user=tuple([job.user for job in jobs]),
        account=tuple([job.account for job in jobs]),
        name=tuple([job.name for job in jobs]),
        partition=tuple([job.partitions[0] if job.partitions else "" for job in jobs]),
        qos=tuple([job.qos for job in jobs]),
        gpus=numbers([gang.gpu_count for gang in gangs]),
        cpus=numbers([gang.cpus or None for gang in gangs]),
        nodes=numbers([gang.nodes_min for gang in gangs]),
        memory_mib=numbers(
            [None if gang.memory_mib_per_node is None else gang.memory_mib_per_node * gang.nodes_min for gang in gangs]
        ),
        limit_s=numbers(limits_s(jobs, snapshot)),
        submit_time=numbers([job.submit_time for job in jobs]),
        waited_s=numbers([_waited_s(job, snapshot) for job in jobs]),
        elapsed_s=numbers([_elapsed_s(job, snapshot) for job in jobs]),
    )


class QueueRunTimes:
    """The run-time model, asked about a queue: a job that did not change keeps its forecast."""

    def __init__(self, model: RunTimeForecaster) -> None:
        """Take a model, without any answers yet."""
        self.model = model
        self._keys = Memo[int | _Alike, _Asked | _Alike, Keys]()
        self._pending = Memo[int | _Alike, _Seen, RunTime | None]()
        self._running = Memo[int | _Alike, _Seen, Drawn]()

    def forecast(self, pending: Sequence[Job], running: Sequence[Job], snapshot: Snapshot) -> list[RunTime | None]:
        """Return the run times of pending jobs, then of running ones; None if the model does not know.

        Raises `ModelError` if the model returns invalid values.
        """
        jobs, history = (*pending, *running), self.model.history
        names: list[int | _Alike] = [job.job_id for job in jobs]
        job_by_name = dict(zip(names, jobs, strict=True))

        def table(some: Iterable[int | _Alike]) -> RunTimeTable:
            return run_time_table([job_by_name[name] for name in some], snapshot)

        def drawn(some: Collection[int | _Alike]) -> Drawn:
            return self.model.draw(table(some), history.recall([keys_by_name[name] for name in some]))

        limits, waits_s = limits_s(jobs, snapshot), [_waited_s(job, snapshot) for job in jobs]
        steps_s = wait_reached_s(np.array(waits_s, dtype=np.float64)).tolist()
        asked: list[_Asked | _Alike] = [
            (job.user, job.account, job.name, job.partitions, job.qos, job.gang, limit_s, job.submit_time, step_s)
            for job, limit_s, step_s in zip(jobs, limits, steps_s, strict=True)
        ]
        keys = self._keys.fill(names, asked, lambda some: keys_of(table(some))) if len(history) else [()] * len(jobs)
        near, user = history.stamps(keys).T.tolist()
        of_gang = {
            id(gang): (gang.gpu_count, gang.cpus, gang.nodes_min, gang.memory_mib_per_node)
            for gang in {id(job.gang): job.gang for job in pending}.values()
        }
        for place, job in enumerate(pending):
            if not near[place] and not user[place]:
                asked[place] = names[place] = (*of_gang[id(job.gang)], limits[place], steps_s[place])
        job_by_name, keys_by_name = dict(zip(names, jobs, strict=True)), dict(zip(names, keys, strict=True))
        seen = zip(asked, near, user, repeat(self.model.levels.levels.tobytes()), strict=False)
        of_pending = self._pending.fill(
            names[: len(pending)], islice(seen, len(pending)), lambda some: self._read(drawn(some))
        )
        curves = self._running.fill(names[len(pending) :], seen, lambda some: drawn(some).row_by_row())
        return of_pending + self._now(curves, running, snapshot)

    def _now(self, curves: Sequence[Drawn], jobs: Sequence[Job], snapshot: Snapshot) -> list[RunTime | None]:
        """Read the curves of running jobs, given their elapsed time."""
        run_times: list[RunTime | None] = []
        for start in range(0, len(jobs), BATCH):
            batch = slice(start, start + BATCH)
            elapsed_s = np.array([_elapsed_s(job, snapshot) for job in jobs[batch]], dtype=np.float64)
            run_times += self._read(replace(Drawn.join(curves[batch]), elapsed_s=elapsed_s))
        return run_times

    def _read(self, drawn: Drawn) -> list[RunTime | None]:
        answers = self.model.read(drawn)
        intervals = listed(answers.intervals(), least=0.0, most=LATEST_TIME)
        return [
            RunTime(interval_s=interval, mean_s=mean_s)
            if interval is not None and interval.low <= mean_s <= LATEST_TIME
            else None
            for interval, mean_s in zip(intervals, answers.mean_s.tolist(), strict=True)
        ]


class EndedSeen:
    """The jobs that ran in the last snapshot."""

    def __init__(self) -> None:
        """Begin without a snapshot."""
        self._running: dict[int, Job] = {}
        self._seen_at = float("-inf")

    def since_last(self, snapshot: Snapshot) -> EndedJobs:
        """Return the jobs that ended since the last snapshot.

        The end of a job that Slurm does not show any more is taken to be halfway between the two; where these are more
        than `LONGEST_GAP_S` apart, none is known to have ended. A job that waits again, or is suspended, has not ended.
        """
        now, before = snapshot.taken_at, self._seen_at
        ends: dict[int, float] = {}
        if 0.0 <= now - before <= LONGEST_GAP_S:
            shown = snapshot.jobs_by_id
            for job_id, job in self._running.items():
                end_time = _end_time(shown.get(job_id), now, (before + now) / 2.0)
                if end_time is not None and job.start_time is not None:
                    ends[job_id] = end_time
        ended = [self._running[job_id] for job_id in ends]
        end_time_of = np.array([*ends.values()], np.float64)
        self._running, self._seen_at = {job.job_id: job for job in snapshot.running_gpu_jobs}, now
        return EndedJobs(
            jobs=run_time_table(ended, snapshot),
            run_s=end_time_of - np.array([job.start_time for job in ended], np.float64),
            end_time=end_time_of,
            state=("",) * len(ended),
        )


def _end_time(shown: Job | None, now: float, halfway: float) -> float | None:
    """Return when a job that ran ended by its record, None if it has not."""
    if shown is None:
        return halfway
    is_over = not shown.is_pending and shown.end_time is not None and shown.end_time <= now
    return shown.end_time if is_over and shown.start_time is not None else None


def _waited_s(job: Job, snapshot: Snapshot) -> float:
    until = snapshot.taken_at if job.is_pending or job.start_time is None else job.start_time
    return max(0.0, until - job.submit_time)


def _elapsed_s(job: Job, snapshot: Snapshot) -> float:
    return 0.0 if job.is_pending or job.start_time is None else max(0.0, snapshot.taken_at - job.start_time)
