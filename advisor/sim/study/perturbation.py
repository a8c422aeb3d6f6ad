"""Copies of a trace that differ in nothing of importance, to show how much of a difference is chance.

On a busy queue the start of one job decides those of many others, so that a policy that hardly does anything still
changes the waits of single users. The same jobs submitted up to five minutes later or earlier show how much.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.sim.traces.trace import Trace

LONGEST_SHIFT_S: Final = 300.0
_STREAM: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PerturbedTrace:
    """A copy of a trace; `row` `(n_jobs,)` is the row in the original trace of each job of the copy."""

    trace: Trace
    row: NDArray[np.intp]

    def in_original_order(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values of the jobs of the copy, `(..., n_jobs)`, in the order of the original trace."""
        ordered = np.empty_like(values)
        ordered[..., self.row] = values
        return ordered


def perturbed(trace: Trace, repeat: int, seed: int) -> PerturbedTrace:
    """Return a copy of a trace whose jobs are submitted up to `LONGEST_SHIFT_S` later, at random.

    Jobs that one user submits at the same time stay together, and the order of the jobs of a user stays, so that job
    arrays and dependencies are what they were.
    """
    jobs = trace.jobs.copy()
    pair = np.stack([jobs["user"].astype(np.float64), jobs["submit_time"]], axis=1)
    submissions, submission_of_job = np.unique(pair, axis=0, return_inverse=True)
    rng = np.random.default_rng([_STREAM, seed, repeat])
    shifted = submissions[:, 1] + rng.uniform(0.0, LONGEST_SHIFT_S, len(submissions))
    # Submissions are sorted by user and time, and so are their new times.
    shifted = shifted[np.lexsort((shifted, submissions[:, 0]))]
    jobs["submit_time"] = shifted[submission_of_job.reshape(-1)]
    row = np.lexsort((jobs["job_id"], jobs["submit_time"]))
    return PerturbedTrace(trace=replace(trace, jobs=jobs[row]), row=row)
