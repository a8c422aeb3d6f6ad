"""Builds the observation of learned policies: the competing jobs and the nodes as arrays, live and simulated alike.

`board_of` makes a board from the tables of a snapshot, `sim.state_board` makes it from the simulator's arrays; both are
equal to the bit. A policy is trained on one order of columns, which its fingerprint names.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advisor.features.nodes import NodeTable
from advisor.features.queue import QueueTable

JOB_COLUMNS: Final = ("gpus", "gpus_least", "gpu_type", "tasks", "wait_s", "limit_s", "priority", "nice")
NODE_COLUMNS: Final = ("gpus_total", "gpus_idle", "cpus_idle", "is_usable", "leaf")
FINGERPRINT: Final = hashlib.sha256(json.dumps([JOB_COLUMNS, NODE_COLUMNS]).encode()).hexdigest()

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The observation of one cycle; every number is a float32, as in training.

    `jobs` holds the pending jobs that compete for GPUs, in the order in which Slurm considers them. A limit that is not
    known is NaN.
    """

    job_id: NDArray[np.int64]  # (n_jobs,)
    jobs: Rows  # (n_jobs, len(JOB_COLUMNS))
    nodes: Rows  # (n_nodes, len(NODE_COLUMNS)), by name

    def __post_init__(self) -> None:
        if self.jobs.shape != (len(self.job_id), len(JOB_COLUMNS)) or self.nodes.shape[1:] != (len(NODE_COLUMNS),):
            raise ValueError(f"{self.jobs.shape} and {self.nodes.shape} are not the shapes of a board")


def board_of(queue: QueueTable, table: NodeTable) -> Board:
    """Return the board of a queue and its nodes."""
    return stacked(
        job_id=[job.job_id for job in queue.jobs],
        jobs={
            "gpus": queue.gpus,
            "gpus_least": queue.smallest,
            "gpu_type": queue.gpu_type,
            "tasks": queue.tasks,
            "wait_s": queue.wait_s,
            "limit_s": queue.limit_s,
            "priority": queue.priority,
            "nice": [job.nice for job in queue.jobs],
        },
        nodes={
            "gpus_total": table.gpus_total.sum(axis=1),
            "gpus_idle": table.gpus_idle.sum(axis=1),
            "cpus_idle": table.cpus_idle,
            "is_usable": table.usable,
            "leaf": table.leaf,
        },
    )


def stacked(job_id: ArrayLike, jobs: Mapping[str, ArrayLike], nodes: Mapping[str, ArrayLike]) -> Board:
    """Return the board of columns by name: `(n_jobs,)` and `(n_nodes,)` each."""
    return Board(
        job_id=np.asarray(job_id, dtype=np.int64),
        jobs=_side_by_side([jobs[name] for name in JOB_COLUMNS]),
        nodes=_side_by_side([nodes[name] for name in NODE_COLUMNS]),
    )


def _side_by_side(columns: Sequence[ArrayLike]) -> Rows:
    return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns]).astype(np.float32)


# For policies that look at the options alone.
NO_BOARD: Final = stacked(job_id=[], jobs={name: [] for name in JOB_COLUMNS}, nodes={name: [] for name in NODE_COLUMNS})
