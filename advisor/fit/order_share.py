"""Measures how well forecasts of run times order jobs that wait together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Pairs that are compared at once: rows of one block times all.
_BLOCK_ROWS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedJobs:
    """Jobs that waited, `(n_jobs,)`: when from and until when, their GPUs, and their bursts."""

    submit_time: Floats
    start_time: Floats
    gpus: Floats
    burst: NDArray[np.int64]


def ordered(jobs: WaitedJobs, run_s: Floats, said_s: Sequence[Floats]) -> list[float]:
    """Return for each forecast `(n_jobs,)` which share of the GPU-time at stake it orders right, from 0 to 1.

    At stake is by how much the GPU-times of two jobs of different bursts differ that waited at the same time: what the
    wrong order of the two costs, if one machine runs the shortest first. A tie counts half. NaN where no jobs differ.
    """
    work_s, said_work_s = run_s * jobs.gpus, [said * jobs.gpus for said in said_s]
    at_stake, right = 0.0, np.zeros(len(said_s))
    for first in range(0, len(run_s), _BLOCK_ROWS):
        rows = slice(first, first + _BLOCK_ROWS)
        # Each pair once: the later row of the two is in the block.
        earlier = np.arange(len(run_s)) < np.arange(first, first + len(run_s[rows]))[:, None]
        together = (jobs.submit_time < jobs.start_time[rows, None]) & (jobs.submit_time[rows, None] < jobs.start_time)
        pairs = np.nonzero(earlier & together & (jobs.burst != jobs.burst[rows, None]))
        one, other = pairs[0] + first, pairs[1]
        gap_s = work_s[one] - work_s[other]
        at_stake += float(np.abs(gap_s).sum())
        for number, said in enumerate(said_work_s):
            agrees = np.sign(said[one] - said[other]) * np.sign(gap_s)
            right[number] += float((np.abs(gap_s) * (1.0 + agrees) / 2.0).sum())
    return (right / at_stake).tolist() if at_stake else [np.nan] * len(said_s)
