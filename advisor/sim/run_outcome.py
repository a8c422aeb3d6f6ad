"""The outcome of one simulated run: how and when every job of the trace ended."""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.sim.traces.trace import Trace


class End(IntEnum):
    """The way a job ended, as stored in `OUTCOME_DTYPE`."""

    NOT = 0  # still pending or running when the run stopped
    FINISHED = 1
    TIME_LIMIT = 2  # killed by its time limit
    IMPOSSIBLE = 3  # larger than the cluster, or refused by a limit; never queued
    DEPENDENCY = 4  # its dependency can never be met: pending until the end of the run
    PREEMPTED = 5  # cancelled, so that another job could start


# One row per job, in the order of the trace. Times are seconds on the clock of the trace, NaN where not reached.
OUTCOME_DTYPE = np.dtype(
    [
        ("start_time", np.float64),  # first start
        ("end_time", np.float64),
        ("end", np.int8),
        ("preemptions", np.int32),
        ("resizes", np.int32),
        ("held_gpu_s", np.float64),  # GPU-seconds held over all its segments
        ("exposed_gpu_s", np.float64),  # of these, spent in exposed communication between nodes
        ("lost_gpu_s", np.float64),  # of these, lost to restarts, checkpoints and work done again
    ],
    align=True,
)

# One row per stretch of time in which a job held one allocation, in the order in which they ended.
SEGMENT_DTYPE = np.dtype(
    [
        ("job", np.int32),  # row of the trace
        ("gpus", np.int32),
        ("nodes", np.int32),
        ("tier", np.int8),  # LocalityTier
        ("start_time", np.float64),
        ("end_time", np.float64),
    ],
    align=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One simulated run: `outcomes` `(n_jobs,)` of `OUTCOME_DTYPE`, `segments` `(n_segments,)` of `SEGMENT_DTYPE`.

    `wall_s` is the time of the loop, without reading files and compiling. `changes` counts the changes that the policy
    made to pending jobs, those that it took back included.
    """

    trace: Trace
    policy: str
    seed: int
    cluster_gpus: int
    outcomes: NDArray[np.void]
    segments: NDArray[np.void]
    wall_s: float
    peak_rss_mib: float
    changes: int = 0
