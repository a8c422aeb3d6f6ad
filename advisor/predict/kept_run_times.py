"""Forecasts the run times of a queue, cycle after cycle; a job that did not change keeps its forecast.

Few jobs of a queue change within a minute, and a forecast depends only on the job's own request, on the history of its
keys, and on the levels. So the result equals a forecast of the whole queue.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain.forecast import Interval, RunTime
from advisor.domain.gang import GangRequest
from advisor.domain.job import LATEST_TIME, Job
from advisor.domain.snapshot import Snapshot
from advisor.features.queue import limits_s
from advisor.predict.history import Keys, keys_of
from advisor.predict.intervals import Intervals
from advisor.predict.run_time import Drawn, RunTimeForecaster, RunTimeTable
from advisor.predict.run_time_features import wait_reached_s

# Rows per batch: the tables between a request and its quantiles are a hundred times as wide as the request.
CHUNK = 1024

# All that the forecast of a job depends on, except its elapsed time; last come its submission and the wait reached.
_Asked = tuple[str, str, str, tuple[str, ...], str, GangRequest, float | None, float, float]
_Stamps = tuple[int, int]


def run_time_table(jobs: Sequence[Job], snapshot: Snapshot) -> RunTimeTable:
    """Return jobs as rows of the run-time model; a running job is forecast from its elapsed time."""

    def numbers(values: Iterable[float | None]) -> np.ndarray:
        return np.array([*values], dtype=np.float64)  # numpy reads None as NaN

    gangs = [job.gang for job in jobs]
    return RunTimeTable(
        user=tuple(job.user for job in jobs),
        account=tuple(job.account for job in jobs),
        name=tuple(job.name for job in jobs),
        partition=tuple(job.partitions[0] if job.partitions else "" for job in jobs),
        qos=tuple(job.qos for job in jobs),
        gpus=numbers(gang.gpu_count for gang in gangs),
        cpus=numbers(gang.cpus or None for gang in gangs),
        nodes=numbers(gang.nodes_min for gang in gangs),
        memory_mib=numbers(
            None if gang.memory_mib_per_node is None else gang.memory_mib_per_node * gang.nodes_min for gang in gangs
        ),
        limit_s=numbers(limits_s(jobs, snapshot)),
        submit_time=numbers(job.submit_time for job in jobs),
        waited_s=numbers(_waited_s(job, snapshot) for job in jobs),
        elapsed_s=numbers(_elapsed_s(job, snapshot) for job in jobs),
    )


def listed(intervals: Intervals, *, least: float, most: float) -> list[Interval | None]:
    """Return the intervals as a list, None for those that are not known, or reach below `least` or above `most`."""
    low, median, high = intervals.low, intervals.median, intervals.high
    # NaN compares with nothing, so that it is not sound.
    sound = intervals.known & (np.minimum(low, median) >= least) & (np.maximum(high, median) <= most)
    columns = (low.tolist(), median.tolist(), high.tolist(), sound.tolist())
    return [
        Interval(low=min(low, median), median=median, high=max(high, median)) if known else None
        for low, median, high, known in zip(*columns, strict=True)
    ]


@dataclass(slots=True)
class _Kept:
    """The forecast of one job; `row` is the row of its curve if the job was running."""

    asked: _Asked
    keys: Keys
    stamps: _Stamps
    run_time: RunTime | None = None
    row: int = -1


class KeptRunTimes:
    """The run-time model with its last answers; it holds those of the last queue alone."""

    def __init__(self, model: RunTimeForecaster) -> None:
        """Take a model, without any answers kept."""
        self.model = model
        self._pending: dict[int, _Kept] = {}
        self._running: dict[int, _Kept] = {}
        self._curves: Drawn | None = None
        self._history = -1
        self._levels = b""

    def forecast(self, pending: Sequence[Job], running: Sequence[Job], snapshot: Snapshot) -> list[RunTime | None]:
        """Return the run times of pending jobs, then of running ones; None if the model does not know.

        Raises `ModelError` if the model returns invalid values.
        """
        history, levels = self.model.history, self.model.levels.levels.tobytes()
        if levels != self._levels:
            self._pending.clear()
            self._levels = levels
        grown = history.version != self._history
        self._history = history.version
        return self._of_pending(pending, snapshot, grown=grown) + self._of_running(running, snapshot, grown=grown)

    def _of_pending(self, jobs: Sequence[Job], snapshot: Snapshot, *, grown: bool) -> list[RunTime | None]:
        kept, fresh = self._unchanged(jobs, snapshot, self._pending, grown=grown)
        for added, drawn in self._drawn(fresh, snapshot):
            for forecast, run_time in zip(added.values(), self._read(drawn), strict=True):
                forecast.run_time = run_time
            kept |= added
        self._pending = kept
        return [kept[job.job_id].run_time for job in jobs]

    def _of_running(self, jobs: Sequence[Job], snapshot: Snapshot, *, grown: bool) -> list[RunTime | None]:
        """Read the curves again for jobs that run, given their elapsed time; draw only the curves that changed."""
        kept, fresh = self._unchanged(jobs, snapshot, self._running, grown=grown)
        curves = (
            [] if self._curves is None else [self._curves.take(np.array([entry.row for entry in kept.values()], int))]
        )
        for added, drawn in self._drawn(fresh, snapshot):
            kept |= added
            curves.append(drawn)
        for row, each in enumerate(kept.values()):
            each.row = row
        self._running, self._curves = kept, Drawn.join(curves) if kept else None
        if self._curves is None:
            return []
        elapsed_s = dict.fromkeys(kept, 0.0) | {job.job_id: _elapsed_s(job, snapshot) for job in jobs}
        drawn = replace(self._curves, elapsed_s=np.array([elapsed_s[job_id] for job_id in kept], dtype=np.float64))
        run_times: list[RunTime | None] = []
        for start in range(0, len(kept), CHUNK):
            run_times += self._read(drawn.take(slice(start, start + CHUNK)))
        return [run_times[kept[job.job_id].row] for job in jobs]

    def _unchanged(
        self, jobs: Sequence[Job], snapshot: Snapshot, before: dict[int, _Kept], *, grown: bool
    ) -> tuple[dict[int, _Kept], list[tuple[Job, _Asked]]]:
        """Split jobs into those whose forecast still holds and those to forecast, with the requests of the latter."""
        same: dict[int, _Kept] = {}
        fresh: list[tuple[Job, _Asked]] = []
        waits_s = wait_reached_s(np.array([_waited_s(job, snapshot) for job in jobs], dtype=np.float64)).tolist()
        for job, limit_s, wait_s in zip(jobs, limits_s(jobs, snapshot), waits_s, strict=True):
            asked = (
                *(job.user, job.account, job.name, job.partitions, job.qos, job.gang),
                *(limit_s, job.submit_time, wait_s),
            )
            kept = before.get(job.job_id)
            if kept is not None and kept.asked == asked:
                same[job.job_id] = kept
            else:
                fresh.append((job, asked))
        if not grown or not same:
            return same, fresh
        stamps = _paired(self.model.history.stamps([kept.keys for kept in same.values()]))
        learnt = {job_id for (job_id, kept), now in zip(same.items(), stamps, strict=True) if kept.stamps != now}
        fresh += [(job, same.pop(job.job_id).asked) for job in jobs if job.job_id in learnt]
        return same, fresh

    def _drawn(
        self, fresh: Sequence[tuple[Job, _Asked]], snapshot: Snapshot
    ) -> Iterator[tuple[dict[int, _Kept], Drawn]]:
        """Yield what to keep of jobs, by id and without run times, with their curves in the same order."""
        for start in range(0, len(fresh), CHUNK):
            some = fresh[start : start + CHUNK]
            table = run_time_table([job for job, _ in some], snapshot)
            keys = keys_of(table)
            recalled, stamps = self.model.history.recall_stamped(keys)
            yield (
                {
                    job.job_id: _Kept(asked, of_job, stamp)
                    for (job, asked), of_job, stamp in zip(some, keys, _paired(stamps), strict=True)
                },
                self.model.draw(table, recalled),
            )

    def _read(self, drawn: Drawn) -> list[RunTime | None]:
        answers = self.model.read(drawn)
        intervals = listed(answers.intervals(), least=0.0, most=LATEST_TIME)
        return [
            RunTime(interval_s=interval, mean_s=mean_s)
            if interval is not None and interval.low <= mean_s <= LATEST_TIME
            else None
            for interval, mean_s in zip(intervals, answers.mean_s.tolist(), strict=True)
        ]


def _paired(stamps: np.ndarray) -> list[_Stamps]:
    return [(near, user) for near, user in stamps.tolist()]


def _waited_s(job: Job, snapshot: Snapshot) -> float:
    until = snapshot.taken_at if job.is_pending or job.start_time is None else job.start_time
    return max(0.0, until - job.submit_time)


def _elapsed_s(job: Job, snapshot: Snapshot) -> float:
    return 0.0 if job.is_pending or job.start_time is None else max(0.0, snapshot.taken_at - job.start_time)
