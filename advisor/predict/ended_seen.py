"""Notices the GPU jobs that ended between two snapshots, so that run times are learnt while a daemon runs."""

import numpy as np

from advisor.domain.job import Job
from advisor.domain.outcome import LONGEST_GAP_S
from advisor.domain.snapshot import Snapshot
from advisor.predict.queue_run_times import run_time_table
from advisor.predict.run_time_table import EndedJobs


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
